"""Tensors that are swapped while they are recorded: as plain, and births follow the content."""

import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture import background_births


@pytest.fixture
def swapping():
    """`Module.to` swaps the content of parameters."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def converted():
    layer = nn.Linear(2, 2)
    weight, bias = layer.weight, torch.ones(2)
    layer.bias = nn.Parameter(bias)
    layer.bias.requires_grad_(False)
    assert layer.double().weight is weight
    return weight.dtype


def test_parameters_made_in_a_recording_are_swapped(swapping):
    with devwidget.record(heal=True) as recording:
        assert converted() is torch.float64
    assert recording.trace.findings == ()


def test_parameters_made_between_recordings_are_swapped(swapping):
    background_births.begin_watching()
    try:
        assert converted() is torch.float64
    finally:
        background_births.end_watching()


def test_parameters_are_swapped_on_virtual_gpus_and_in_a_trace(swapping):
    class Cast(nn.Linear):
        def forward(self, x):
            return super().forward(x.to(self.double().weight.dtype))

    with devwidget.simulate(1):
        trace = devwidget.trace(Cast(2, 2).cuda(), torch.ones(1, 2, device="cuda"))
    assert trace.error == ""


def test_births_follow_the_content():
    with devwidget.simulate(1), devwidget.record(heal=True) as recording:
        mine = torch.ones(2, device="cuda")
        other = torch.zeros(2)
        torch.utils.swap_tensors(mine, other)
        mine + torch.ones(2, device="cuda")
    (finding,) = recording.trace.findings
    assert finding.birth.text == "other = torch.zeros(2)"


def test_a_weak_reference_of_the_user_still_forbids_the_swap():
    with devwidget.record():
        one, two = torch.ones(2), torch.zeros(2)
        reference = weakref.ref(one)
        with pytest.raises(RuntimeError, match="Cannot swap t1"):
            torch.utils.swap_tensors(one, two)
        assert reference() is one
