"""Gradients are where their tensors are, or CUDA's error says otherwise."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.modes.birth_mode import BirthMode
from tests.older_torch import before

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")


def test_gradients_go_back_the_way_of_the_moves():
    x = torch.ones(3, requires_grad=True)
    (x.cuda().to("cuda:1", torch.float16) * 2 + x.to("cuda:1")).sum().backward()
    assert (x.grad.device, x.grad.dtype, x.grad.tolist()) == (CPU, torch.float32, [3, 3, 3])


def test_second_derivatives_cross_devices():
    w = torch.ones(3, device=FIRST, requires_grad=True)
    (first,) = torch.autograd.grad((w.to(SECOND) ** 3).sum(), w, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), w)
    assert first.device == second.device == FIRST
    assert second.tolist() == [6, 6, 6]


@pytest.mark.parametrize("write", [lambda b, x: b.copy_(x), lambda b, x: b.__setitem__(slice(None), x)])
def test_what_was_copied_into_a_gpu_tensor_gets_its_gradient_at_home(write):
    x, buffer = torch.ones(3, requires_grad=True), torch.zeros(3, device=FIRST)
    write(buffer, x)
    (buffer * torch.full((3,), 2.0, device=FIRST)).sum().backward()
    assert x.grad.device == CPU
    assert x.grad.tolist() == [2, 2, 2]


def test_gradients_of_cpu_scalars_travel_home():
    w = torch.ones(3, device=FIRST, requires_grad=True)
    leaf, root = torch.tensor(2.0, requires_grad=True), nn.Parameter(torch.tensor(3.0))
    (w * (leaf * leaf) * root).sum().backward()
    assert leaf.grad.device == root.grad.device == CPU
    assert (leaf.grad.item(), root.grad.item()) == (36, 12)


class OnCpu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return torch.zeros(grad.shape)


def test_a_custom_function_must_return_its_gradient_on_the_device_of_the_input():
    x = torch.ones(3, device=FIRST, requires_grad=True)
    text = "Function OnCpuBackward returned an invalid gradient at index 0 - expected device cuda:0 but got cpu"
    with pytest.raises(RuntimeError, match=text):
        OnCpu.apply(x).sum().backward()
    OnCpu.apply(torch.ones(3, requires_grad=True)).sum().backward()


def test_a_gradient_cannot_be_assigned_from_elsewhere():
    x = torch.ones(3, device=FIRST)
    with pytest.raises(RuntimeError, match="gradient located on device with index '1' to a tensor located on device with"):
        x.grad = torch.ones(3, device=SECOND)
    with pytest.raises(RuntimeError, match="gradient with device type 'cpu' to a tensor with device type 'cuda'"):
        x.grad = torch.ones(3)
    x.grad = torch.ones(3, device=FIRST)
    assert x.grad.device == FIRST
    x.grad = None


@before((2, 11), "it cannot keep operators from function modes")
def test_what_is_read_of_tensors_in_backward_is_no_call_for_a_recording(monkeypatch):
    names, original = [], BirthMode.__torch_function__
    with devwidget.record():
        x, weight = (torch.ones(3, 3, device=FIRST, requires_grad=True) for _ in range(2))
        loss = (x @ weight.t() + x.reshape(9)[:9].view(3, 3) * x).sum()
        monkeypatch.setattr(
            BirthMode,
            "__torch_function__",
            lambda mode, func, *rest: names.append(func.__name__) or original(mode, func, *rest),
        )
        loss.backward()
    assert names == ["backward"]
    assert x.grad.device == FIRST
