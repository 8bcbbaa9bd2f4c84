"""The kind of accelerator is data: another one than CUDA, made up here, runs on the same simulator."""

from dataclasses import replace

import pytest
import torch

from devwidget import explain, snapshot, trace
from devwidget.records.device import KINDS
from devwidget.simulator import Simulation
from devwidget.simulator.accelerator import CUDA
from devwidget.simulator.virtual_machine import parse_cluster
from tests.older_torch import before

TOY = replace(
    CUDA,
    type="xpu",  # torch knows a device type of this name, and no CPU build has the device
    title="XPU",
    number=int(torch._C._autograd.DeviceType.XPU),
    visible_variable="TOYS_IN_REACH",
    block_bytes=64,
    invalid_ordinal="that toy is not in the box",
    out_of_memory="the box is full: {requested} for toy {index}, {free} of {capacity} left",
    casts=replace(CUDA.casts, lower=frozenset({"mm"})),
)


@pytest.fixture
def toys(monkeypatch):
    monkeypatch.setenv("TOYS_IN_REACH", "0,2")
    monkeypatch.setitem(KINDS, "xpu", TOY)
    with Simulation(parse_cluster(3, "1MiB", True, TOY)) as simulation:
        yield simulation


def test_a_training_step_runs_on_it(toys):
    model = torch.nn.Linear(4, 2).to("xpu")
    optimizer, before = torch.optim.SGD(model.parameters(), lr=1), model.weight.tolist()
    model(torch.ones(3, 4, device="xpu:0")).sum().backward()
    optimizer.step()
    assert model.weight.tolist() != before
    assert (model.weight.grad.device, model.weight.is_xpu, model.weight.is_cuda) == (torch.device("xpu:0"), True, False)
    assert not trace(model, torch.ones(3, 4, device="xpu")).findings


def test_errors_are_in_its_words(toys):
    with pytest.raises(RuntimeError, match="at least two devices, xpu:0 and xpu:1!"):
        torch.ones(2, device="xpu") + torch.ones(2).to("xpu:1")
    with pytest.raises(RuntimeError, match=r"got mat2 is on cpu, .* xpu:0 \(when .* in method wrapper_XPU_mm\)"):
        torch.mm(torch.ones(2, 2).xpu(), torch.ones(2, 2))
    with pytest.raises(torch.OutOfMemoryError, match=r"the box is full: 4.00 MiB for toy 1, 1.00 MiB of 1.00 MiB left"):
        torch.empty(2**20, device=1)
    with pytest.raises(torch.AcceleratorError, match="that toy is not in the box"):
        torch.ones(1, device="xpu:2")


def test_its_blocks_environment_and_casts_are_its_own(toys):
    one = torch.ones(1, 1, device="xpu")
    assert (torch.xpu.memory_allocated(), torch.xpu.device_count()) == (64, 2)
    with torch.autocast("xpu", torch.float16):
        assert (torch.mm(one, one).dtype, torch.bmm(one[None], one[None]).dtype) == (torch.float16, torch.float32)


class Astray(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.to(f"xpu:{self.index}") if self.index is not None else x * self.scale)


@pytest.fixture
def model(toys):
    """Asks for a toy that is not there, or, with an `index` of None, reads an attribute that no replica has of its own."""
    made = Astray(4, 2, device="xpu")
    made.index, made.scale = 7, torch.ones(1, device="xpu")
    return made


def test_a_trace_speaks_of_it_and_leaves_its_generators_as_they_were(model):
    before = torch.xpu.get_rng_state()
    (finding,) = trace(torch.nn.Sequential(torch.nn.Dropout(), model), torch.ones(3, 4, device="xpu")).findings
    assert (finding.kind, finding.fixes[-2].code) == ("invalid-device", "'xpu:0'")
    assert "TOYS_IN_REACH hides and renumbers cards: the first visible one is xpu:0" in finding.notes
    assert torch.equal(torch.xpu.get_rng_state(), before)


@before((2, 9), "its DataParallel asks for streams of CUDA alone")
def test_a_replica_that_fails_on_it_is_explained(model):
    model.index = None
    with pytest.raises(RuntimeError, match="in replica 1 on device 1") as caught:
        torch.nn.DataParallel(model)(torch.ones(4, 4, device="xpu"))
    assert [finding.kind for finding in explain(caught.value).findings] == ["unregistered-tensor"]


def test_the_bytes_of_a_model_are_counted_in_its_blocks(toys):
    (card, *_) = snapshot(torch.nn.Linear(4, 2, device="xpu")).memory
    assert (card.parameters, card.activations) == (64 + 64, 0)
