"""Hooks tell the parts of a step, go when the run ends, and are noticed by nobody."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.watch import step_hooks, watch
from devwidget.extras.watch.records.run import PARTS
from devwidget.records.errors import DevwidgetError
from tests.extras.watch.loops import Clock


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_hooks.time, "perf_counter_ns", lambda: clock.now)
    return clock


class Slowly(torch.autograd.Function):
    """Takes time on the way back."""

    @staticmethod
    def forward(ctx, x, clock):
        ctx.clock = clock
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.pass_time(7)
        return gradient, None


class Timed(nn.Module):
    def __init__(self, clock):
        super().__init__()
        self.linear, self.clock = nn.Linear(2, 2), clock

    def forward(self, x):
        self.clock.pass_time(5)
        return Slowly.apply(self.linear(x), self.clock)


def parts_of(rows, at):
    return {part: getattr(rows, part)[at] // 1000 for part in PARTS if getattr(rows, part)[at]}


def test_each_part_of_a_step_has_its_time(clock):
    model = Timed(clock)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.register_step_pre_hook(lambda *_: clock.pass_time(2))
    with devwidget.watch(model, optimizer) as run:
        for _ in range(2):
            clock.pass_time(11)
            out = model(torch.ones(1, 2))
            clock.pass_time(3)
            out.sum().backward()
            clock.pass_time(1)
            optimizer.step()
    first, second = (parts_of(run.steps, at) for at in range(2))
    assert first == second == {"data": 11, "forward": 5, "loss": 3, "backward": 7, "other": 3}


def test_evaluation_is_told_apart(clock):
    model = Timed(clock)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with devwidget.watch(model, optimizer) as run:
        for step in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            model.eval()
            for _ in range(3 * step):
                clock.pass_time(10)
                model(torch.ones(1, 2))
            model.train()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert run.steps.evaluations == (0, 0, 3)
    assert parts_of(run.steps, 2)["evaluation"] == 45


class Careful(torch.optim.SGD):
    """Its step is that of its base, which torch wraps too."""

    def step(self, closure=None):
        if closure == "fails":
            raise ValueError
        return super().step(closure)


def test_a_step_inside_of_a_step_is_none(clock):
    model = Timed(clock)
    torch.optim.SGD(model.parameters(), 0.1)  # torch wraps a class when its first object is made
    optimizer = Careful(model.parameters(), 0.1)
    with devwidget.watch(model, optimizer) as run:
        for closure in (None, "fails", None, None):
            clock.pass_time(11)
            model(torch.ones(1, 2)).sum().backward()
            with contextlib.suppress(ValueError):
                optimizer.step(closure)
    assert run.steps.total == 3
    assert [parts_of(run.steps, at)["data"] for at in range(3)] == [11, 11, 11]


class Thinking(torch.optim.SGD):
    """Runs its closure twice, and takes time in between."""

    def __init__(self, parameters, clock):
        parameters = list(parameters)
        torch.optim.SGD(parameters, 0.01)  # whose step torch wraps from then on
        super().__init__(parameters, 0.01)
        self.clock = clock

    def step(self, closure=None):
        for _ in range(2):
            closure()
            self.clock.pass_time(2)
        super().step()


def test_what_a_closure_runs_is_no_time_of_the_optimizer(clock):
    model = nn.Linear(2, 2)
    optimizer = Thinking(model.parameters(), clock)

    def closure():
        clock.pass_time(1)
        loss = Slowly.apply(model(torch.ones(1, 2)), clock).sum()
        clock.pass_time(5)
        loss.backward()

    with devwidget.watch(model, optimizer) as run:
        for _ in range(3):
            clock.pass_time(11)
            optimizer.step(closure)
    assert parts_of(run.steps, 1) == {"data": 12, "loss": 10 + 14, "optimizer": 5}


def test_without_an_optimizer_a_step_ends_with_the_forward_pass(clock):
    model = Timed(clock)
    with devwidget.watch(model) as run:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
    assert run.steps.total == 3
    assert parts_of(run.steps, 2) == {"forward": 5, "backward": 7}


def test_a_model_that_is_always_in_eval_is_trained_nevertheless():
    model = nn.Linear(2, 2).eval()
    with devwidget.watch(model) as run:
        model(torch.ones(1, 2)).sum().backward()
    assert run.steps.evaluations == (0,)


def hooks_of(model, optimizer):
    tables = (model._forward_hooks, model._forward_pre_hooks, model._forward_pre_hooks_with_kwargs)
    return [*tables, optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]


@pytest.mark.parametrize("end", [None, ValueError, KeyboardInterrupt])
def test_no_hook_is_left_whatever_ends_the_run(end):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = devwidget.watch(model, optimizer)
    try:
        with run:
            for step in range(15):  # ends in a step that is recorded
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
                if step == 10 and end is not None:
                    model(torch.ones(1, 2))
                    raise end("over")
    except (ValueError, KeyboardInterrupt):
        pass
    assert not any(hooks_of(model, optimizer))
    assert run.result.error == ("" if end is None else f"{end.__name__}: over")
    assert 10 in run.recorded


def test_a_graph_that_outlives_the_run_tells_nothing_more():
    model = nn.Linear(2, 2)
    with devwidget.watch(model) as run:
        loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    assert run.steps.backward == (0,)


def test_a_copy_of_a_watched_model_is_not_watched():
    model = nn.Linear(2, 2)
    with devwidget.watch(model) as run:
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            other(torch.ones(1, 2)).sum().backward()
        model(torch.ones(1, 2))
    assert run.steps.total == 1


def test_what_is_saved_under_watch_needs_nothing_of_ours_and_gives_no_warning():
    model, written = nn.Linear(2, 2), io.BytesIO()
    with devwidget.watch(model):
        torch.save(model, written)
        torch.save(model(torch.ones(1, 2)), io.BytesIO())
    assert b"devwidget" not in written.getvalue()


def test_a_compiled_model_has_no_graph_break_and_the_same_numbers():
    losses, breaks = [], []
    for is_watched in (False, True):
        torch.manual_seed(0)
        torch._dynamo.reset()
        counters = torch._dynamo.utils.counters
        counters.clear()
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        compiled = torch.compile(model, backend="eager")
        with devwidget.watch(compiled if is_watched else nn.Linear(1, 1)) as run, devwidget.watch(model):
            for _ in range(4):
                losses.append(compiled(torch.ones(1, 4)).sum().item())
        breaks.append((dict(counters["graph_break"]), counters["stats"]["unique_graphs"]))
    assert run.steps.total == 4
    assert losses[:4] == losses[4:]
    assert breaks[0] == breaks[1] == ({}, 1)


def test_replicas_are_no_steps():
    with devwidget.simulate(2):
        model = nn.DataParallel(nn.Linear(4, 4).cuda())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with devwidget.watch(model, optimizer) as run:
            for _ in range(3):
                model(torch.ones(4, 4)).sum().backward()
                optimizer.step()
        assert run.steps.total == 3
        assert [str(each.device) for each in run.steps.memory] == ["cuda:0", "cuda:1"]


def test_our_own_failure_is_noted_and_the_run_goes_on(monkeypatch):
    def fail():
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(watch, "read_allocators", fail)
    model = nn.Linear(2, 2)
    with devwidget.watch(model) as run:
        model(torch.ones(1, 2)).sum().backward()
    assert run.result.not_checked == ("watch: ZeroDivisionError: ours",)
    assert model.weight.grad is not None


def test_a_function_is_watched_each_time_it_is_called():
    model = nn.Linear(2, 2)
    run = devwidget.watch(model)

    @run
    def train(steps):
        for _ in range(steps):
            model(torch.ones(1, 2))
        return steps

    assert train(2) + train(3) == 5
    assert run.steps.first == (0, 1, 2, 3, 4)


def test_a_run_is_entered_once_at_a_time():
    with devwidget.watch(nn.Linear(2, 2)) as run, pytest.raises(DevwidgetError, match="already being watched"):
        run.__enter__()


@pytest.mark.parametrize(
    "wrong",
    [{"every": 0}, {"every": 1.5}, {"optimizer": 3}, {"model": "no"}, {"path": 7}, {"path": "/no/such/folder/watch.jsonl"}],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(DevwidgetError):
        devwidget.watch(**{"model": nn.Linear(1, 1), **wrong})
