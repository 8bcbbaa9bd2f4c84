"""`x[where] = value` between devices: slices copy, a tensor of indices is a kernel of one device."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("gpus")

MASK = torch.tensor([True, False, True, False])
BY_TENSOR = {
    "mask": lambda: MASK.cuda(),
    "mask of the CPU": lambda: MASK,
    "indices": lambda: torch.tensor([0, 2], device="cuda:0"),
    "list": lambda: [0, 2],
    "array": lambda: torch.tensor([0, 2]).numpy(),
    "tuple": lambda: (torch.tensor([0, 2], device="cuda:0"), slice(None)),
}
BY_SLICE = {"slice": lambda: slice(0, 2), "one index in a tensor": lambda: torch.tensor(0, device="cuda:0"), "...": lambda: ...}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
@pytest.mark.parametrize("where", BY_TENSOR)
def test_a_value_of_another_device_is_refused_where_tensors_index(where, device, requires_grad):
    target = torch.zeros(4, 3, device="cuda:0")
    value = torch.ones(2, 3, device=device, requires_grad=requires_grad)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        target[BY_TENSOR[where]()] = value


@pytest.mark.parametrize("where", BY_SLICE)
def test_a_slice_copies_from_another_device_and_its_gradient_comes_back(where):
    target = torch.zeros(4, 3, device="cuda:0")
    value = torch.ones(3, device="cuda:1", requires_grad=True)
    target[BY_SLICE[where]()] = value
    target.sum().backward()
    assert value.grad.device == torch.device("cuda:1")
    assert value.grad.sum() > 0


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_single_number_of_the_cpu_fills_a_mask(requires_grad):
    target = torch.zeros(4, device="cuda:0")
    target[MASK.cuda()] = torch.tensor([5.0], requires_grad=requires_grad)
    assert target.tolist() == [5, 0, 5, 0]


def test_a_cast_that_autocast_keeps_from_a_pass_without_gradients_trains():
    layer = torch.nn.Linear(2, 2).cuda()
    x = torch.ones(1, 2, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        with torch.no_grad():
            layer(x)
        loss = layer(x).float().sum()
    loss.backward()
    assert layer.weight.grad is not None


LEGACY = ["Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool"]


@pytest.mark.parametrize("name", LEGACY)
def test_every_legacy_type_casts_and_moves_by_its_class_and_by_its_name(name):
    x = torch.ones(2)
    dtype = torch.zeros(0).type(f"torch.{name}Tensor").dtype
    for kind, owner in (("cpu", torch), ("cuda", torch.cuda)):
        legacy = getattr(owner, f"{name}Tensor")
        for wanted in (legacy, f"{owner.__name__}.{name}Tensor"):
            for start in (x, x.cuda()):
                done = start.type(wanted)
                assert (done.dtype, done.device.type) == (dtype, kind)
                assert isinstance(done, legacy)


def test_a_legacy_type_of_cuda_leaves_a_tensor_on_its_gpu():
    assert torch.ones(2, device="cuda:1").type(torch.cuda.HalfTensor).device == torch.device("cuda:1")
