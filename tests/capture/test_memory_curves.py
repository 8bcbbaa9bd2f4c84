"""Memory along a recording: every point adds up, and the peak is the allocator's."""

from __future__ import annotations

import gc
import re

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture import torch_internals
from devwidget.capture.memory.curves import MOST_POINTS, Event, Point, thin_points
from devwidget.capture.memory.training_state import training_bytes
from devwidget.gpus.state import Ledger
from devwidget.records.device import DeviceId
from devwidget.records.memory import ROLES, MemoryCurve
from devwidget.report.text.advice import memory_advice
from tests.sampling import as_slow

MIB = 1024**2


class Chain(nn.Module):
    """Layers spread over GPUs, the hidden state carried along."""

    def __init__(self, gpus: int) -> None:
        super().__init__()
        layers = (nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True) for _ in range(gpus))
        self.blocks = nn.ModuleList(layer.to(f"cuda:{index}") for index, layer in enumerate(layers))

    def forward(self, x):
        for index, block in enumerate(self.blocks):
            x = block(x.to(f"cuda:{index}"))
        return x


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.BatchNorm1d(512), nn.Linear(512, 10))


def program(name: str, gpus: int) -> tuple[nn.Module, torch.Tensor]:
    if name == "mlp":
        return mlp().to("cuda:0"), torch.randn(64, 256, device="cuda:0")
    if name == "transformer":
        return Chain(gpus), torch.randn(4, 16, 64, device="cuda:0")
    return nn.DataParallel(mlp().to("cuda:0"), list(range(gpus))), torch.randn(64, 256, device="cuda:0")


def parts(point) -> dict[str, int]:
    return {role: size for role in ROLES if (size := getattr(point, role))}


@pytest.fixture
def seen(monkeypatch):
    """What the allocator held after each allocation, by GPU, counted beside the code under test."""
    held: dict[int, list[int]] = {}
    take = Ledger.take_bytes

    def counted(self, index, size):
        block = take(self, index, size)
        held.setdefault(index, []).append(self.accounts[index].held)
        return block

    monkeypatch.setattr(Ledger, "take_bytes", counted)
    return held


@pytest.mark.parametrize(("name", "gpus"), [("mlp", 1), ("transformer", 3), ("data parallel", 2), ("data parallel", 8)])
def test_parts_add_up_at_every_point_and_peaks_are_the_allocators(name, gpus, seen):
    with devwidget.simulate(gpus):
        model, batch = program(name, gpus)
        optimizer = torch.optim.Adam(model.parameters())
        for index in range(gpus):
            torch.cuda.reset_peak_memory_stats(index)
        seen.clear()
        with devwidget.record() as recording:
            recording.attach(model, optimizer)
            for _ in range(2):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
        peaks = [torch.cuda.max_memory_allocated(index) for index in range(gpus)]
        now = [torch.cuda.memory_allocated(index) for index in range(gpus)]
        curves = recording.trace.memory
    assert [curve.peak.allocated for curve in curves] == peaks
    assert [curve.points[-1].allocated for curve in curves] == now
    for index, curve in enumerate(curves):
        assert all(sum(parts(point).values()) == point.allocated for point in curve.points)
        assert all(min(parts(point).values(), default=0) >= 0 for point in curve.points)
        drawn = [point.allocated for point in curve.points]
        assert not seen.get(index) or max(seen[index]) in drawn
        assert len(drawn) >= min(len(seen.get(index, ())), MOST_POINTS // 2)


def test_categories_are_those_of_the_training_step():
    with devwidget.simulate(1):
        model, batch = mlp().to("cuda:0"), torch.randn(64, 256, device="cuda:0")
        optimizer = torch.optim.Adam(model.parameters())
        trace = devwidget.trace(model, batch, loss_fn=lambda out: out.sum(), optimizer=optimizer)
    (curve,) = trace.memory
    rounded = [-(-p.numel() * 4 // 512) * 512 for p in model.parameters()]
    last = {point.phase: point for point in curve.points}
    assert {point.parameters for point in curve.points} == {sum(rounded)}
    assert {point.buffers for point in curve.points} == {2 * 2048 + 512}
    assert {point.inputs for point in curve.points} == {64 * 256 * 4}
    assert last["forward"].gradients == last["forward"].optimizer == 0
    # kept for backward: the ReLU's result, both Linears' results before and after BatchNorm, and its two statistics
    assert last["forward"].activations == 3 * 64 * 512 * 4 + 2 * 2048
    assert (last["backward"].gradients, last["backward"].activations) == (sum(rounded), 0)
    assert last["optimizer"].optimizer == 2 * sum(rounded)


def test_what_lives_at_the_peak_is_told_by_module_and_line():
    with devwidget.simulate(1):
        model = nn.Sequential(nn.Linear(16, 4096), nn.Linear(4096, 16)).to("cuda:0")
        (curve,) = devwidget.trace(model, torch.randn(256, 16, device="cuda:0"), loss_fn=lambda out: out.sum()).memory
    largest = curve.holdings[0]
    assert (largest.role, largest.bytes, largest.phase, largest.module) == ("activations", 4 * MIB, "forward", "0")
    made = sum(holding.bytes for holding in curve.holdings)
    assert made == curve.peak.allocated - curve.peak.parameters - curve.peak.inputs


def test_in_backward_the_peak_names_the_module_whose_gradients_were_computed():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1024), nn.Linear(1024, 8))
    with devwidget.simulate(1):
        model.to("cuda:0")
        trace = devwidget.trace(model, torch.randn(4096, 8, device="cuda:0"), loss_fn=lambda out: out.sum())
        (curve,) = trace.memory
    # 16 MiB are kept by the last layer, whose backward makes as much again.
    assert (curve.peak.phase, curve.peak.module) == ("backward", "2")
    assert curve.peak.activations >= 16 * MIB


def test_replicas_hold_copies_of_the_parameters_and_their_share_of_the_batch_and_of_what_is_gathered():
    with devwidget.simulate(2):
        model = nn.DataParallel(nn.Linear(256, 512), [0, 1]).to("cuda:0")
        batch = torch.randn(64, 256, device="cuda:0")
        first, second = devwidget.trace(model, batch, loss_fn=lambda out: out.sum()).memory
    weights = 256 * 512 * 4 + 512 * 4
    assert max(point.parameters for point in second.points) == first.peak.parameters == weights
    assert max(point.inputs for point in second.points) == 32 * 256 * 4
    assert max(point.inputs for point in first.points) == 64 * 256 * 4
    assert max(point.outputs for point in second.points) == 32 * 512 * 4
    assert max(point.gathered for point in first.points) == 64 * 512 * 4
    assert second.peak.gathered == 0


def reached(trace):
    """How many allocations each device got to before one did not fit."""
    full = [curve for curve in trace.memory if curve.refused]
    return {curve.device: sum(point.number <= curve.refused[0].number for point in curve.points) for curve in full}


@pytest.mark.parametrize("name", ["mlp", as_slow("transformer")])
def test_the_batch_that_is_advised_gets_past_the_line_that_found_no_room(name):
    with devwidget.simulate(2, memory="4MiB"):
        model, whole = program(name, 2)
        samples = 64 if name == "transformer" else 1024
        batch = torch.randn(samples, *whole.shape[1:], device="cuda:0")
        for _ in range(6):
            trace = devwidget.trace(model, batch, loss_fn=lambda out: out.square().sum())
            if not trace.error:
                break
            told = next(each.text for each in memory_advice(trace) if "requested" in each.text)
            fits = int(re.search(r"([\d,]+) of the", told)[1].replace(",", ""))
            assert 0 < fits < len(batch)
            gc.collect()  # replicas of a step that failed live in cycles
            failed = reached(trace)
            batch = batch[:fits].clone()
            again = devwidget.trace(model, batch, loss_fn=lambda out: out.square().sum())
            gc.collect()
            assert all(place > failed.get(device, 0) for device, place in reached(again).items())


def test_a_refusal_knows_what_lived_then_which_is_not_what_lived_at_the_peak():
    with devwidget.simulate(1, memory="8MiB"), devwidget.record() as recording:
        high = torch.ones(6 * MIB, dtype=torch.uint8, device="cuda")
        del high
        kept = torch.ones(2 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(7 * MIB, dtype=torch.uint8, device="cuda")
    (curve,) = recording.trace.memory
    (refused,) = curve.refused
    assert (curve.peak.allocated, refused.allocated) == (6 * MIB, 2 * MIB)
    assert (refused.live.allocated, refused.live.other) == (2 * MIB, 2 * MIB)
    assert [(each.bytes, each.site.text[:4]) for each in refused.holdings] == [(2 * MIB, "kept")]
    assert kept is not None


def test_a_recording_sees_what_was_there_before_and_what_goes():
    with devwidget.simulate(1):
        before = torch.ones(MIB, dtype=torch.uint8, device="cuda")
        with devwidget.record() as recording:
            new = torch.ones(2 * MIB, dtype=torch.uint8, device="cuda")
            del before
            gc.collect()
        (curve,) = recording.trace.memory
    assert [point.allocated for point in curve.points] == [MIB, 3 * MIB, 2 * MIB]
    assert curve.peak.site.text.startswith("new = torch.ones(")
    assert new is not None


def test_a_torch_that_does_not_tell_what_is_kept_counts_it_as_other_and_says_so(monkeypatch):
    monkeypatch.setattr(torch_internals, "saved_data", None)
    with devwidget.simulate(1):
        trace = devwidget.trace(*program("mlp", 1), loss_fn=lambda out: out.square().mean())
    (curve,) = trace.memory
    assert not any(point.activations for point in curve.points)
    assert str(trace).count("torch before 2.9 does not report what autograd keeps") == 1


def test_saved_tensor_hooks_are_not_run_and_versions_still_checked():
    packed, unpacked = [], []
    with devwidget.simulate(1), devwidget.record():
        x = torch.randn(64, device="cuda", requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: unpacked.append(1) or t):
            nn.Identity().to("cuda")(x.exp()).sum()
        assert packed
        assert not unpacked
        y = x.exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_long_recording_keeps_few_points_and_its_peak():
    points = [Point(Event(n, "forward", None, None, 0, n * 7919 % 100_003), {}) for n in range(50_000)]
    few = thin_points(points)
    assert len(few) <= MOST_POINTS
    assert max(point.event.held for point in few) == max(point.event.held for point in points)
    assert min(point.event.held for point in few) == 0


def test_without_a_gpu_only_the_tensors_of_the_model_are_counted():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    trace = devwidget.trace(model, torch.randn(2, 8), loss_fn=lambda out: out.sum(), optimizer=optimizer)
    (curve,) = trace.memory
    assert isinstance(curve, MemoryCurve)
    assert (str(curve.device), curve.source) == ("cpu", "model")
    assert [parts(point) for point in curve.points][-1] == {"parameters": 288, "gradients": 288, "optimizer": 288}
    assert [point.phase for point in curve.points] == ["forward", "loss", "backward", "optimizer"]
    with devwidget.record() as recording:
        model(torch.randn(2, 8))
    assert recording.trace.memory == ()


def test_another_model_is_foreign_also_when_it_was_traced_before():
    with devwidget.simulate(1):
        one, other = nn.Linear(256, 256).to("cuda:0"), nn.Linear(256, 512).to("cuda:0")
        batch = torch.randn(4, 256, device="cuda:0")
        devwidget.trace(other, batch, loss_fn=lambda out: out.sum())
        (curve,) = devwidget.trace(one, batch, loss_fn=lambda out: out.sum()).memory
    assert {point.foreign for point in curve.points} == {512 * 256 * 4 + 512 * 4}
    assert {point.parameters for point in curve.points} == {256 * 256 * 4 + 256 * 4}


def test_gradients_and_optimizer_state_are_counted_while_a_step_runs():
    with devwidget.simulate(1):
        model, batch = mlp().to("cuda:0"), torch.randn(64, 256, device="cuda:0")
        optimizer = torch.optim.Adam(model.parameters())
        assert training_bytes(model, optimizer) == {}
        model(batch).sum().backward()
        optimizer.step()
        rounded = sum(-(-p.numel() * 4 // 512) * 512 for p in model.parameters())
        parts = training_bytes(model, optimizer)[DeviceId("cuda", 0)]
    assert parts["gradients"] == rounded
    assert parts["optimizer"] == pytest.approx(2 * rounded, abs=16 * 512)
