"""Assertions of kernels: in the words of the CPU where they are made, or late and for good, as on CUDA."""

import pytest
import torch

import devwidget
from devwidget.simulator import simulate

ASSERTED = "CUDA error: device-side assert triggered"


def stop_kernel():
    """A result that is none."""
    return torch.ones(3, device="cuda")[torch.tensor([9], device="cuda")]


def test_whoever_waits_is_told_and_nothing_is_answered_afterwards():
    with simulate(2, asserts="device"):
        x, y = torch.ones(3, device="cuda"), (stop_kernel() * 2).relu_()
        with pytest.raises(torch.AcceleratorError, match=ASSERTED) as caught:
            y.sum().item()
        assert "CUDA_LAUNCH_BLOCKING=1 in the environment shows which call" in str(devwidget.explain(caught.value))
        for call in (lambda: x + 1, lambda: torch.ones(1, device="cuda:1"), torch.cuda.synchronize):
            with pytest.raises(torch.AcceleratorError, match=ASSERTED):
                call()
        assert torch.ones(2).sum().item() == 2


def test_by_default_the_text_is_clear_and_says_what_cuda_would_do(gpus):
    for call, kind, text in (
        (stop_kernel, IndexError, "index 9 is out of bounds for dimension 0 with size 3"),
        (lambda: torch.ones(3, device="cuda").gather(0, torch.tensor([9], device="cuda")), RuntimeError, "index 9 is out of"),
        (lambda: torch.nn.functional.one_hot(torch.tensor([9], device="cuda"), 3), RuntimeError, "must be smaller than num"),
    ):
        with pytest.raises(kind, match=text) as caught:
            call()
        assert "`device-side assert triggered`" in caught.value.__notes__[0]
    with pytest.raises(IndexError) as caught:
        torch.ones(3)[torch.tensor([9])]
    assert not hasattr(caught.value, "__notes__")
    assert torch.ones(2, device="cuda").sum().item() == 2
