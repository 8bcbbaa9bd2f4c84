"""What goes wrong while a step is undone stops nothing else, and is named."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.restore import keep_state
from devwidget.capture.restore.keepers import Undoing
from tests.capture.restore.changing_models import Changing, buffered
from tests.described import described, differences

LARGE = 1 << 16
"""Elements of a float tensor that is too large to be saved at the start."""


def _traced(model):
    return devwidget.trace(model, torch.rand(2, 4))


def test_an_undo_that_raises_is_named():
    undoing = Undoing()

    def fail():
        raise ValueError("broken\nsecond line")

    undoing.attempt_step("second", fail)
    assert undoing.lost == [("second", "ValueError: broken")]


def test_what_is_lost_is_named_by_its_path_in_the_text_too():
    inner = buffered(lambda m, x: m.seen.untyped_storage().resize_(0), torch.ones(LARGE))
    traced = _traced(Changing(lambda m, x: m.body[0](x), body=nn.ModuleList([inner])))
    assert traced.not_restored == ("`body.0.seen` (its storage was freed)",)
    assert "could not restore: `body.0.seen` (its storage was freed)" in str(traced)
    assert inner.seen.untyped_storage().nbytes() == LARGE * 4


def test_a_result_that_is_written_is_named():
    weight = torch.ones(3, requires_grad=True)
    model = Changing(lambda m, x: m.kept["hidden"].add_(1), kept={"hidden": weight * 2})
    assert _traced(model).not_restored == ("`kept['hidden']` (it belongs to another graph now)",)


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


class Loss(nn.Module):
    """Writes into itself and into the target."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, out, target):
        self.calls += 1
        return (out * self.scale - target.mul_(2)).sum()


def test_the_loss_module_the_target_and_the_gradient_of_the_batch_are_put_back():
    loss, batch, target = Loss(), torch.rand(2, 4, requires_grad=True), torch.rand(2, 4)
    before = described(loss, batch, target)
    traced = devwidget.trace(nn.Linear(4, 4), batch, loss_fn=loss, target=target)
    assert not traced.error
    assert differences(before, described(loss, batch, target)) == []


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
