"""Moves between devices, in all the ways to write them."""

import numpy
import pytest
import torch

from devwidget.capture.patching import registry

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.to(1),
        lambda x: x.to(SECOND),
        lambda x: x.to(device="cuda:1", dtype=torch.float64),
        lambda x: x.to("cuda:1", torch.float64, True, True),
        lambda x: x.to(torch.ones(1, device=SECOND)),
        lambda x: x.cuda(1),
        lambda x: x.cuda(device=SECOND, non_blocking=True),
        lambda x: x.type_as(torch.ones(1, device=SECOND)),
        lambda x: torch.ones(1, device=SECOND).copy_(x[:1]),
        lambda x: torch.asarray(x, device="cuda:1"),
        lambda x: torch.nn.Linear(2, 2).to(1).weight,
    ],
)
def test_every_way_to_move_reaches_the_second_gpu(move):
    assert move(torch.ones(2)).device == SECOND


def test_a_move_to_where_it_is_returns_the_tensor_itself():
    x, y = torch.ones(2), torch.ones(2, device="cuda")
    assert x.cpu() is x
    assert x.to("cpu") is x
    assert y.cuda() is y
    assert y.to("cuda") is y
    assert y.to("cuda", copy=True) is not y


def test_dtype_and_memory_format_alone_do_not_move():
    x = torch.ones(1, 2, 2, 2, device=SECOND)
    assert x.to(torch.float16).device == SECOND
    assert x.to(torch.float64, True, True).device == SECOND
    assert x.to(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    assert x.half().float().device == SECOND


def test_views_and_results_are_where_their_tensor_is():
    x = torch.ones(2, 3, device=SECOND)
    for y in (x[0], x.T, x.detach(), x.data, x + 1, x.sum(), x.new_zeros(2), torch.zeros_like(x), x.float().view(-1)):
        assert y.device == SECOND


def test_module_to_keeps_its_parameters():
    model = torch.nn.BatchNorm1d(2)
    before = list(model.parameters())
    model.to(SECOND)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert {t.device for t in model.state_dict().values()} == {SECOND}


def test_an_unknown_device_name_is_refused_as_ever():
    with pytest.raises(RuntimeError, match=r"Expected one of cpu, cuda.* device type at start of device string: gpu"):
        torch.ones(1).to("gpu")


def test_numpy_of_a_gpu_tensor_is_refused():
    x = torch.ones(2, device=SECOND)
    for convert in (torch.Tensor.numpy, numpy.asarray):
        with pytest.raises(TypeError, match="can't convert cuda:1 device type tensor to numpy"):
            convert(x)
    assert x.cpu().numpy().sum() == x.numpy(force=True).sum() == 2


def test_only_cpu_tensors_can_be_pinned():
    assert torch.ones(2).pin_memory().is_pinned()
    assert torch.empty(2, pin_memory=True).is_pinned()
    assert not torch.ones(2).is_pinned()
    with pytest.raises(RuntimeError, match=r"cannot pin 'torch\.cuda\.FloatTensor' only dense CPU tensors can be pinned"):
        torch.ones(2, device="cuda").pin_memory()


def test_a_thread_pins_while_another_imports_a_part_of_torch():
    """As the thread of a `DataLoader` does: an import puts the patches of all threads aside."""
    on_gpu = torch.ones(2, device="cuda")
    with registry.suspend_layers():
        pinned = torch.ones(2).pin_memory()
        with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
            on_gpu.pin_memory()
    assert pinned.is_pinned()
    assert pinned.tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:The torch.cuda")
def test_old_type_names_move_too():
    x = torch.ones(2)
    assert x.type("torch.cuda.DoubleTensor").device == torch.cuda.LongTensor([1, 2]).device == FIRST
    assert isinstance(x.cuda(), torch.cuda.FloatTensor)


def test_a_number_is_written_to_samples_of_vmap_on_their_gpu():
    def mark(row):
        marks = row.new_zeros(3)
        marks[row] = 1
        return marks

    marked = torch.vmap(mark)(torch.tensor([[0, 1], [2, 2]], device=FIRST))
    assert (marked.device, marked.tolist()) == (FIRST, [[1, 1, 0], [0, 0, 1]])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, where it goes forward
@pytest.mark.parametrize(
    "transform",
    [torch.func.hessian, lambda f: torch.vmap(torch.func.grad(lambda x: f(x).sum()))],
    ids=["hessian", "vmap of grad"],
)
def test_a_move_inside_a_transformed_function_has_the_derivatives_of_one_device(transform):
    def across(x):
        return (x * x).to("cuda:1").sin().to(x.device).sum(-1)

    x = torch.linspace(-1, 1, 6).reshape(3, 2)
    there = transform(across)(x.to("cuda:0"))
    assert there.device == torch.device("cuda:0")
    torch.testing.assert_close(there.cpu(), transform(lambda x: (x * x).sin().sum(-1))(x))
