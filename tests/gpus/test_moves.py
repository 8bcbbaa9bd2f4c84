"""Moves between devices, in all the ways to write them."""

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


def test_a_thread_pins_while_another_imports_a_part_of_torch():
    """As the thread of a `DataLoader` does: an import puts the patches of all threads aside."""
    on_gpu = torch.ones(2, device="cuda")
    with registry.suspend_patches():
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
