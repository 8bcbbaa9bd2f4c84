"""What goes wrong while a step is undone stops nothing else, and is named."""

import _thread
import csv
import io
import itertools
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import devwidget
from devwidget.capture.restore import keep_state
from devwidget.capture.restore.undoing import NotRestored, Undoing
from tests.capture.restore.changing_models import Changing, buffered
from tests.described import described, differences

LARGE = 1 << 16
"""Elements of a float tensor that is too large to be saved at the start."""


def _traced(model):
    return devwidget.trace(model, torch.rand(2, 4))


def test_an_undo_that_raises_does_not_stop_the_others():
    done = []
    undoing = Undoing()

    def fail():
        raise ValueError("broken\nsecond line")

    undoing.run_steps([("first", lambda: done.append(1)), ("second", fail), ("third", lambda: done.append(3))])
    assert done == [1, 3]
    assert undoing.lost == [("second", "ValueError: broken")]


def test_an_interrupt_between_undo_steps_is_raised_after_the_last_one():
    done = []
    once = iter([KeyboardInterrupt])

    def interrupted():
        for each in once:
            raise each
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        Undoing().run_steps([("first", interrupted), ("second", lambda: done.append(2))])
    assert done == [1, 2]


def test_an_undo_that_is_always_interrupted_is_given_up():
    done = []

    def interrupted():
        raise KeyboardInterrupt

    undoing = Undoing()
    with pytest.raises(KeyboardInterrupt):
        undoing.run_steps([("first", interrupted), ("second", lambda: done.append(2))])
    assert done == [2]
    assert [what for what, _ in undoing.lost] == ["first"]


def test_the_words_of_what_is_lost_are_the_reason():
    def lose():
        raise NotRestored("its storage was freed")

    undoing = Undoing()
    undoing.run_steps([("it", lose)])
    assert undoing.lost == [("it", "its storage was freed")]


def test_a_large_storage_that_is_freed_is_named():
    model = buffered(lambda m, x: m.seen.untyped_storage().resize_(0), torch.ones(LARGE))
    assert _traced(model).not_restored == ("`seen` (its storage was freed)",)
    assert model.seen.untyped_storage().nbytes() == LARGE * 4


def _in_a_thread_of_c(m, x):
    """As threads that C++ starts: `threading` knows nothing of it."""
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(lambda: (m.body[0].seen.add_(1), done.release()), ())
    done.acquire()


def test_a_large_tensor_written_in_a_thread_is_named_by_its_path():
    inner = buffered(lambda m, x: None, torch.ones(LARGE))
    model = Changing(_in_a_thread_of_c, body=nn.ModuleList([inner]))
    assert _traced(model).not_restored == (
        "`body.0.seen` (it was written out of sight of torch's dispatcher, such as in a thread of its own)",
    )


def test_a_result_that_is_written_is_named():
    weight = torch.ones(3, requires_grad=True)
    model = Changing(lambda m, x: m.kept["hidden"].add_(1), kept={"hidden": weight * 2})
    assert _traced(model).not_restored == ("`kept['hidden']` (it belongs to another graph now)",)


def test_what_is_lost_is_in_the_text_and_on_the_page():
    traced = _traced(buffered(lambda m, x: m.seen.untyped_storage().resize_(0), torch.ones(LARGE)))
    assert "could not put back: `seen` (its storage was freed)" in str(traced)
    from devwidget.report.page.html import page_facts  # the page draws from these facts

    facts = page_facts(devwidget.snapshot(nn.Linear(1, 1)), traced)
    assert facts["panel"]["traced"]["not_restored"] == ["`seen` (its storage was freed)"]


def test_a_trace_without_losses_says_nothing():
    traced = _traced(buffered(lambda m, x: m.seen.add_(1), torch.ones(LARGE)))
    assert traced.not_restored == ()
    assert "put back" not in str(traced)


def test_a_large_array_that_changed_is_named():
    import numpy

    model = Changing(lambda m, x: m.table.__setitem__(5, 1), table=numpy.zeros(5 << 20))
    assert _traced(model).not_restored == ("`table` (it was changed, and more than 16 MiB are not copied)",)


class Odd(nn.Module):
    """Its own methods are no help for a walk."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen += 1
        self.notes = 1
        return self.lin(x)

    def parameters(self, recurse=True):
        raise AssertionError("parameters")

    def modules(self):
        raise AssertionError("modules")

    def __getattr__(self, name):
        if name.startswith("_orig"):
            raise RuntimeError(name)
        return super().__getattr__(name)

    def __eq__(self, other):
        raise AssertionError("eq")

    __hash__ = None


def test_a_model_whose_own_methods_raise_is_kept():
    model = Odd()
    before = described(model)
    with keep_state(model):
        model(torch.ones(1, 4))
        assert differences(before, described(model))
    assert differences(before, described(model)) == []


class Hostile(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(func)


def test_tensors_whose_torch_function_raises_are_kept():
    with torch._C.DisableTorchFunctionSubclass():
        seen = torch.ones(3).as_subclass(Hostile)

    def change(m, x):
        with torch._C.DisableTorchFunctionSubclass():
            m.seen.add_(1)

    model = Changing(change, seen=seen)
    with keep_state(model) as kept:
        model(torch.ones(1, 4))
    assert kept.not_restored == ()
    with torch._C.DisableTorchFunctionSubclass():
        assert seen.tolist() == [1, 1, 1]


def test_a_metaclass_whose_eq_raises_is_no_hindrance():
    class Meta(type):
        def __eq__(cls, other):
            raise AssertionError("eq")

        __hash__ = None

    class Strange(metaclass=Meta):
        def __init__(self):
            self.count = 0

    model = Changing(lambda m, x: setattr(m.strange, "count", 1), strange=Strange())
    assert _traced(model).not_restored == ()
    assert model.strange.count == 0


def test_the_loss_module_is_put_back():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, out):
            self.calls += 1
            return (out * self.scale).sum()

    loss = Loss()
    before = described(loss)
    traced = devwidget.trace(nn.Linear(4, 4), torch.rand(2, 4), loss_fn=loss)
    assert not traced.error
    assert differences(before, described(loss)) == []


def test_the_batch_and_its_gradient_are_put_back():
    batch = torch.rand(2, 4, requires_grad=True)
    target = torch.rand(2, 4)
    before = described(batch, target)
    devwidget.trace(nn.Linear(4, 4), batch, loss_fn=lambda out, y: (out - y.mul_(2)).sum(), target=target)
    assert differences(before, described(batch, target)) == []


def test_an_optimizer_with_a_scheduler_is_put_back():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    scheduler.step()
    before = described(model, optimizer)
    devwidget.trace(model, torch.rand(2, 4), loss_fn=torch.sum, optimizer=optimizer)
    assert differences(before, described(model, optimizer)) == []


@pytest.mark.parametrize("where", ["forward", "backward", "step"])
def test_everything_is_put_back_after_a_failure_in(where):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("backward")

    def change(m, x):
        m.seen.add_(1)
        m.log["a"].append(1)
        if where == "forward":
            raise ValueError("forward")

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            if where == "step":
                raise ValueError("step")

    model = Changing(change, seen=torch.zeros(LARGE), log={"a": []})
    optimizer = Optimizer(model.parameters(), lr=0.1)
    before = described(model, optimizer)
    loss = (lambda out: Fails.apply(out).sum()) if where == "backward" else torch.sum
    traced = devwidget.trace(model, torch.rand(2, 4), loss_fn=loss, optimizer=optimizer)
    assert where in traced.error
    assert differences(before, described(model, optimizer)) == []
    assert traced.not_restored == ()


def test_an_iterator_over_a_list_is_set_back():
    model = Changing(lambda m, x: next(m.rows), rows=iter([1, 2]))
    assert _traced(model).not_restored == ()
    assert list(model.rows) == [1, 2]


def _begun(iterator, items=1):
    for _ in range(items):
        next(iterator)
    return iterator


def _in_a_loop(loop):
    while True:
        yield from loop


MOVING = [
    *(itertools.count(), (row for row in "ab"), _begun(row for row in "abc"), iter({1: 2}), iter([1]), map(str, "ab")),
    *(itertools.cycle("ab"), _begun(itertools.cycle("abc"), 4), zip("ab", "cd", strict=True), enumerate("ab")),
    *(itertools.chain("ab", "c"), itertools.islice("abc", 2), itertools.pairwise("abc"), csv.reader(["a", "b", "c"])),
    *(_begun(_in_a_loop([1, 2, 3])), iter(DataLoader([1, 2, 3])), _begun(_in_a_loop(DataLoader([1, 2, 3])))),
]


@pytest.mark.parametrize("rows", MOVING, ids=lambda rows: type(rows).__name__)
def test_an_iterator_that_cannot_be_set_back_is_named(rows):
    if sys.version_info >= (3, 14) and isinstance(rows, (itertools.count, itertools.cycle)):
        pytest.skip("Python 3.14 does not tell where an iterator of itertools stands")
    model = Changing(lambda m, x: (next(m.rows), next(m.rows, None)), rows=rows)
    assert _traced(model).not_restored == ("`rows` (an iterator that has moved on)",)


UNMOVED = [itertools.count(), iter({1: 2}), (row for row in "ab"), itertools.cycle("ab"), io.StringIO("a"), csv.reader("ab")]


def test_an_iterator_that_stays_where_it_is_is_not_named():
    model = Changing(lambda m, x: None, rows=UNMOVED)
    assert _traced(model).not_restored == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_attributes_of_a_scripted_module_are_put_back():
    class Counted(nn.Module):
        calls: int

        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x

    model = torch.jit.script(Counted())
    assert _traced(model).not_restored == ()
    assert model.calls == 0
