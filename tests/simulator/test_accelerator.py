"""The kind of accelerator is data: another one than CUDA, made up here, runs on the same simulator."""

from dataclasses import replace

import pytest
import torch

from devwidget import trace
from devwidget.records.device import KINDS
from devwidget.simulator import Simulation
from devwidget.simulator.accelerator import CUDA
from devwidget.simulator.virtual_machine import parse_cluster

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


def test_a_step_runs_on_it_and_errors_are_in_its_words(toys):
    model = torch.nn.Linear(4, 2).to("xpu")
    model(torch.ones(3, 4, device="xpu:0")).sum().backward()
    assert (model.weight.grad.device, model.weight.is_xpu, model.weight.is_cuda) == (torch.device("xpu:0"), True, False)
    assert not trace(model, torch.ones(3, 4, device="xpu")).findings
    one = torch.ones(1, 1, device="xpu:1")
    assert (torch.xpu.memory_allocated(1), torch.xpu.device_count()) == (64, 2)
    with torch.autocast("xpu", torch.float16):
        assert (torch.mm(one, one).dtype, torch.bmm(one[None], one[None]).dtype) == (torch.float16, torch.float32)
    with pytest.raises(RuntimeError, match=r"got mat2 is on cpu, .* xpu:0 \(when .* in method wrapper_XPU_mm\)"):
        torch.mm(torch.ones(2, 2).xpu(), torch.ones(2, 2))
    with pytest.raises(torch.OutOfMemoryError, match=r"the box is full: 4.00 MiB for toy 1, 1023.94 KiB of 1.00 MiB left"):
        torch.empty(2**20, device=1)
    with pytest.raises(torch.AcceleratorError, match="that toy is not in the box"):
        torch.ones(1, device="xpu:2")
