"""Tensors are born where they are told to."""

import pytest
import torch

from devwidget.capture.devices import set_default_device

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")
FACTORIES = {
    "zeros": lambda **k: torch.zeros(2, **k),
    "randn": lambda **k: torch.randn(2, **k),
    "arange": lambda **k: torch.arange(3, **k),
    "full": lambda **k: torch.full((2,), 1.0, **k),
    "eye": lambda **k: torch.eye(2, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 3, **k),
    "randint": lambda **k: torch.randint(0, 3, (2,), **k),
    "randperm": lambda **k: torch.randperm(3, **k),
    "tensor": lambda **k: torch.tensor([1.0, 2.0], **k),
    "as_tensor": lambda **k: torch.as_tensor([1, 2], **k),
    "asarray": lambda **k: torch.asarray([1, 2], **k),
    "empty_strided": lambda **k: torch.empty_strided((2,), (1,), **k),
    "zeros_like": lambda **k: torch.zeros_like(torch.ones(2), **k),
    "new_full": lambda **k: torch.ones(2).new_full((2,), 1.0, **k),
    "new_tensor": lambda **k: torch.ones(2).new_tensor([1.0], **k),
    "linear": lambda **k: torch.nn.Linear(2, 2, **k).weight,
    "sparse": lambda **k: torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), check_invariants=True, **k),
    "hann_window": lambda **k: torch.hann_window(4, **k),
}
FOLLOWING = ("zeros_like", "new_full", "new_tensor", "sparse")
"""They ask their tensor, or its parts, instead of a default device."""


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # torch 2.11 and 2.12
@pytest.mark.parametrize("name", FACTORIES)
def test_tensors_are_born_where_they_are_told_to_and_else_on_the_cpu(name):
    make = FACTORIES[name]
    assert make(device="cuda:1").device == make(device=1).device == make(device=SECOND).device == SECOND
    assert make().device == CPU
    if name not in FOLLOWING:
        with torch.device("cuda:1"):
            assert make().device == SECOND


def test_set_default_device_counts_until_it_is_taken_back():
    torch.set_default_device("cuda")
    try:
        assert torch.nn.Linear(2, 2).weight.device == torch.tensor([1.0]).device == FIRST
    finally:
        set_default_device(None)
    assert torch.zeros(1).device == CPU


def test_cuda_without_a_number_is_the_current_gpu():
    with torch.cuda.device(1):
        assert torch.zeros(1, device="cuda").device == torch.ones(1).cuda().device == SECOND
    assert torch.zeros(1, device="cuda").device == FIRST


def test_temporaries_of_cpp_code_adopt_their_partner():
    x = torch.arange(3, device=SECOND)
    assert torch.nn.functional.one_hot(x).device == SECOND
    q = torch.randn(1, 2, 3, 4, device=SECOND)
    assert torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).device == SECOND


class Symmetric(torch.Tensor):
    """A tensor with a promise, as libraries have them."""


def test_a_subclass_is_made_of_a_tensor_on_its_device_and_of_numbers_on_the_cpu():
    x = torch.ones(2, device=SECOND, requires_grad=True)
    made = Symmetric(x)
    assert (type(made), made.device, made.data_ptr()) == (Symmetric, SECOND, x.data_ptr())
    made.sum().backward()
    assert x.grad.device == SECOND
    for tensor in (Symmetric([1.0, 2.0]), Symmetric(2), Symmetric()):
        assert (type(tensor), tensor.device.type) == (Symmetric, "cpu")


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_constructors_of_old_know_their_device():
    assert torch.FloatTensor(2, 3).device == CPU
    assert torch.cuda.FloatTensor(2, device=SECOND).device == torch.ones(2, device=SECOND).new([1.0]).device == SECOND
    with pytest.raises(TypeError, match="expected a tensor on cuda:0"):
        torch.cuda.FloatTensor(torch.ones(2))
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    assert (torch.ones(1).device, torch.ones(1).dtype) == (FIRST, torch.float64)
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.ones(1).device == CPU
