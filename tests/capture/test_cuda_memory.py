"""The way in which real cards are watched, tried on virtual ones: both count the same allocations."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn

import devwidget
from devwidget import gpus as simulator
from devwidget.capture.memory.cuda_memory import CudaMemory
from devwidget.capture.recorder import Recorder
from devwidget.records.memory import ROLES


def recorded(source, model, batch, optimizer):
    """Two steps; the second one starts with gradients and state."""
    recorder = Recorder()
    with recorder:
        recorder.watch_memory(source)
        recorder.attach_model(model, optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    return recorder.collect_trace().memory


def parts(point):
    return {role: size for role in ROLES if (size := getattr(point, role))}


@pytest.fixture
def both():
    """The curves of a program as the allocator tells them, and as they are found from outside."""
    curves = []
    for make in (simulator.memory, CudaMemory):
        with devwidget.simulate(2):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.BatchNorm1d(512), nn.Linear(512, 10)).to("cuda:0")
            batch, optimizer = torch.randn(64, 256, device="cuda:0"), torch.optim.Adam(model.parameters())
            curves.append(recorded(make(), model, batch, optimizer))
    return curves


def test_peak_and_its_parts_are_the_same(both):
    (told, _), (found, _) = both
    assert found.peak.allocated == told.peak.allocated
    assert parts(found.peak) == parts(told.peak)
    assert (found.peak.phase, found.peak.module) == (told.peak.phase, told.peak.module)


def test_what_found_no_room_is_the_same_and_how_much_is_read_from_the_exception():
    refusals = []
    for make in (simulator.memory, CudaMemory):
        with devwidget.simulate(1, memory="3MiB"):
            model, batch = nn.Linear(256, 512).to("cuda:0"), torch.randn(1024, 256, device="cuda:0")
            recorder = Recorder()
            with contextlib.suppress(torch.OutOfMemoryError), recorder:
                recorder.watch_memory(make())
                recorder.attach_model(model)
                model(batch)
            refusals.append(recorder.collect_trace().memory[0].refused)
    told, found = refusals
    assert [(each.bytes, each.allocated, each.module) for each in told] == [(2 * 1024**2, 1574912, "")]
    assert [(each.bytes, each.allocated, each.module) for each in found] == [(2 * 1024**2, 1574912, "")]
    assert (found[0].live, found[0].holdings) == (told[0].live, told[0].holdings)


def test_every_point_adds_up(both):
    for curve in both[1]:
        assert all(sum(parts(point).values()) == point.allocated for point in curve.points)
        assert all(min(parts(point).values(), default=0) >= 0 for point in curve.points)


def test_the_programs_peak_is_read_and_never_reset():
    with devwidget.simulate(1):
        torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        model = nn.Linear(8, 8).to("cuda")
        optimizer = torch.optim.SGD(model.parameters())
        recorded(CudaMemory(), model, torch.randn(2, 8, device="cuda"), optimizer)
        assert torch.cuda.max_memory_allocated() == 1 << 20


def test_a_peak_inside_an_operator_counts():
    memory = CudaMemory()
    figures = iter([(100, 100), (100, 900), (100, 900), (200, 900)])
    with devwidget.simulate(1), pytest.MonkeyPatch.context() as patch:

        def stats(index):
            current, peak = next(figures)
            return {"allocated_bytes": {"all": {"current": current, "peak": peak}}}

        patch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
        assert [memory.allocated(0) for _ in range(4)] == [100, 900, 100, 200]


def test_before_cuda_is_initialised_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: pytest.fail("this would make a context"))
    memory = CudaMemory()
    assert memory.allocated(0) == 0
    assert [each.device.kind for each in memory.devices()] == ["cuda"]
