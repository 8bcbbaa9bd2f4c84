"""Ctrl-C, exceptions and a full memory, wherever they strike: nothing stays installed and the model is as it was."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import jupyter_client
import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture import recorder
from devwidget.capture.interrupts import all_or_nothing, interruptible, uninterrupted
from devwidget.gpus import session
from tests import faults
from tests.capture.restore.test_restore import facts, same
from tests.sampling import sample

ROOT = pathlib.Path(__file__).parent.parent
EVENTS = [KeyboardInterrupt, RuntimeError, torch.cuda.OutOfMemoryError]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strike):
        ctx.strike = strike
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.strike("function")
        return grad * 2, None


class Struck(nn.Module):
    """A model that calls `strike` by name wherever the user's own code runs in it."""

    def __init__(self, strike):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
        self.spare = nn.Linear(2, 2)
        self.state, self.calls, self.seen = torch.zeros(2, 4), 0, []
        self._strike = strike
        inner = self.body[1]
        inner.register_forward_pre_hook(lambda *_: strike("forward pre-hook"))
        inner.register_forward_hook(lambda *_: strike("forward hook"))
        inner.register_full_backward_pre_hook(lambda *_: strike("backward pre-hook"))
        inner.register_full_backward_hook(lambda *_: strike("backward hook"))
        self.spare.register_state_dict_pre_hook(lambda *_: strike("state_dict hook"))
        self.spare.register_load_state_dict_pre_hook(lambda *_: strike("load_state_dict hook"))
        inner.weight.register_hook(lambda grad: strike("tensor hook"))

    def forward(self, x):
        self.calls += 1
        self.state.add_(1)
        out = Doubled.apply(self.body(x), self._strike)
        self._strike("forward")
        self.spare.load_state_dict(self.spare.state_dict())
        return out


class StruckSGD(torch.optim.SGD):
    def __init__(self, parameters, strike):
        super().__init__(parameters, lr=0.1, momentum=0.9)
        self._strike = strike

    def step(self, closure=None):
        super().step(closure)
        self._strike("step")


PLACES = [
    "forward", "forward pre-hook", "forward hook", "state_dict hook", "load_state_dict hook", "loss", "tensor hook", "function",
    "backward pre-hook", "backward hook", "step", "step pre-hook",
]  # fmt: skip


class Program:
    """One training step, interrupted in one place."""

    def __init__(self, place, event):
        self.place, self.event = "", event
        self.model = Struck(self.strike)
        self.optimizer = StruckSGD(self.model.parameters(), self.strike)
        self.optimizer.register_step_pre_hook(lambda *_: self.strike("step pre-hook"))
        self.batch = torch.ones(2, 4)
        self.step()
        self.place = place

    def strike(self, place):
        if place == self.place:
            raise self.event("struck")

    def loss(self, out):
        self.strike("loss")
        return out.sum()

    def step(self):
        self.loss(self.model(self.batch)).backward()
        self.optimizer.step()

    def trace(self, call=devwidget.trace):
        return call(self.model, self.batch, loss_fn=self.loss, optimizer=self.optimizer)

    def facts(self):
        place, self.place = self.place, ""  # `state_dict` calls hooks too
        found = facts(self.model, self.optimizer)
        self.place = place
        return found

    def hooks(self):
        tables = [dict(value) for m in self.model.modules() for key, value in vars(m).items() if "hooks" in key]
        return [*tables, dict(self.model.body[1].weight._backward_hooks)]


@pytest.mark.parametrize(("place", "event"), list(zip(PLACES, itertools.cycle(EVENTS), strict=False)))
def test_what_strikes_the_users_code_leaves_nothing_behind(place, event):
    program = Program(place, event)
    world, before, hooks = faults.world(Doubled), program.facts(), program.hooks()
    if event is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt, match="struck"):
            program.trace()
    else:
        assert program.trace().error == f"{event.__name__}: struck"
        with pytest.raises(devwidget.PlacementError, match="struck"):
            program.trace(devwidget.check)
    assert same(before, program.facts())
    with pytest.raises(event, match="struck"), devwidget.record() as recording:
        program.step()
    assert recording.trace.error == f"{event.__name__}: struck"
    assert program.hooks() == hooks
    assert faults.left_behind(world, Doubled) == []


@pytest.mark.parametrize("ids", [[0], [0, 1]], ids=["one replica", "two replicas"])
def test_a_worker_that_fails_leaves_nothing_behind(ids):
    with devwidget.simulate(2):
        program = Program("forward hook", RuntimeError)
        wrapper = nn.DataParallel(program.model.cuda(), ids)
        world, own = faults.world(), dict(vars(wrapper))
        assert "struck" in devwidget.trace(wrapper, torch.ones(4, 4).cuda()).error
        assert vars(wrapper) == own
        assert faults.left_behind(world) == []


def broken(*_):
    raise RuntimeError("broken")


@pytest.mark.parametrize("part", ["watch_constructions", "module_hooks", "CallMode"])
def test_a_recording_that_cannot_begin_leaves_nothing_behind(part, monkeypatch):
    monkeypatch.setattr(recorder, part, broken)
    program, world = Program("", None), faults.world()
    before = program.facts()
    with pytest.raises(RuntimeError, match="broken"):
        devwidget.record().__enter__()
    with pytest.raises(RuntimeError, match="broken"):
        program.trace()
    assert same(before, program.facts())
    monkeypatch.undo()
    assert faults.left_behind(world) == []


@pytest.mark.parametrize("part", sample(range(len(session.INSTALLS)), every=5, first=-1))
def test_a_simulation_that_cannot_begin_leaves_nothing_behind(part, monkeypatch):
    parts = [broken if place == part else each for place, each in enumerate(session.INSTALLS)]
    monkeypatch.setattr(session, "INSTALLS", tuple(parts))
    world = faults.world()
    with pytest.raises(RuntimeError, match="broken"):
        devwidget.simulate(2).start()
    assert devwidget.gpus.active() is None
    monkeypatch.undo()
    assert faults.left_behind(world) == []


def traced(program):
    program.trace()


def recorded(program):
    with devwidget.record() as recording:
        recording.attach(program.model, program.optimizer)
        program.step()


def simulated(program):
    with devwidget.simulate(2):
        wrapper = nn.DataParallel(nn.Linear(4, 4).to("cuda:0"))
        wrapper(torch.ones(4, 4, device="cuda:0")).sum().backward()


def explained(program):
    with pytest.raises(RuntimeError) as caught:
        program.model(torch.ones(2, 4, dtype=torch.float64))
    devwidget.explain(caught.value)


def interrupted_at(line, nth, act):
    """The program after Ctrl-C, and what is left behind; pytest's own tracer, if any, is put back."""
    program = Program("", None)
    before, world = program.facts(), faults.world(Doubled)
    with faults.interrupts():
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), faults.InterruptAt(line, nth):
            act(program)
        assert signal.getsignal(signal.SIGINT) is handler
    return program, before, faults.left_behind(world, Doubled)


@pytest.mark.parametrize("every", [101, pytest.param(5, marks=[pytest.mark.fuzz, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("act", [traced, recorded, simulated, explained])
def test_ctrl_c_at_any_line_of_ours_leaves_nothing_behind(act, every):
    """Every so many lines, the first and the last time that each runs."""
    act(Program("", None))  # what is imported and cached once
    with faults.LinesRun() as lines:
        act(Program("", None))
    for line, count in list(lines.counts.items())[::every]:
        if faults.cannot_be_interrupted(line):
            continue
        for nth in {1, count}:
            program, before, left = interrupted_at(line, nth, act)
            assert left == [], f"{line} the {nth}th time"
            if act is traced:
                assert same(before, program.facts()), f"{line} the {nth}th time"


def test_virtual_gpus_go_on_after_ctrl_c_in_an_operator():
    def act():
        layer = nn.Linear(4, 4).to("cuda:1")
        layer(torch.ones(2, 4, device="cuda:1")).sum().backward()
        return layer.weight.grad

    with devwidget.simulate(2), faults.interrupts():
        expected = act()
        with faults.LinesRun() as lines:
            act()
        for line in list(lines.counts)[::17]:
            if faults.cannot_be_interrupted(line):
                continue
            with contextlib.suppress(KeyboardInterrupt), faults.InterruptAt(line):  # a finalizer may swallow it
                act()
            assert act().device == expected.device
            assert torch.equal(act().cpu(), expected.cpu())


ENDLESS = textwrap.dedent("""
    import torch, devwidget
    from tests import faults

    class Endless(torch.nn.Linear):
        def forward(self, x):
            print("forward", flush=True)
            while True:
                super().forward(x)

    model = Endless(4, 4)
    world, weight = faults.world(), model.weight.clone()
    try:
        devwidget.trace(model, torch.ones(2, 4))
    except KeyboardInterrupt:
        print(faults.left_behind(world), torch.equal(weight, model.weight))
""")
needs_sigint = pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")


@pytest.mark.process
@needs_sigint
def test_a_real_ctrl_c_ends_a_trace_and_leaves_nothing_behind():
    command, environment = [sys.executable, "-c", ENDLESS], {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as child:
        assert child.stdout.readline() == "forward\n"
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    assert out == "[] True\n"


@pytest.mark.slow
@pytest.mark.process
@needs_sigint
def test_the_stop_button_of_a_notebook_ends_a_trace_and_leaves_nothing_behind():
    with jupyter_client.run_kernel(cwd=str(ROOT)) as client:
        client.execute(ENDLESS)
        out, state = "", "busy"
        while state == "busy" or not out:
            message = client.get_iopub_msg(timeout=60)["content"]
            out, state = out + message.get("text", ""), message.get("execution_state", state)
            if out == "forward\n":
                client.parent.interrupt_kernel()
    assert out == "forward\n[] True\n"


def test_ctrl_c_inside_code_of_ours_waits_for_its_end():
    seen = []

    def nested():
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
            seen.append("end of both")

    with faults.interrupts(), pytest.raises(KeyboardInterrupt):
        nested()
    assert seen == ["end of both"]


def test_ctrl_c_that_has_waited_strikes_before_the_users_code_goes_on():
    def late():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            with interruptible():
                pytest.fail("the user's code went on")

    with faults.interrupts(), pytest.raises(KeyboardInterrupt):
        late()


def test_a_handler_that_the_users_code_sets_stays():
    def own(number, frame):
        seen.append(number)

    seen = []
    with faults.interrupts():
        with uninterrupted():
            with interruptible():
                signal.signal(signal.SIGINT, own)
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is own


@pytest.mark.skipif(os.name == "nt", reason="Windows has three signals")
def test_every_signal_waits_and_all_of_them_strike_in_their_order():
    struck = []

    def raising(number, frame):
        struck.append(signal.Signals(number))
        raise TimeoutError(number)

    def late():
        with uninterrupted():
            for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGALRM, signal.SIGTERM):
                signal.raise_signal(number)
                assert struck == []

    numbers = (signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.signal(number, raising) for number in numbers}
    try:
        with pytest.raises(TimeoutError):
            late()
        assert {signal.getsignal(number) for number in numbers} == {raising}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert struck == [signal.SIGUSR1, signal.SIGINT, signal.SIGALRM, signal.SIGTERM]


def test_what_was_put_in_is_out_again_before_a_second_ctrl_c_strikes():
    class Twice:
        into = None

        @all_or_nothing
        def __enter__(self):
            self.into = "in"
            signal.raise_signal(signal.SIGINT)

        def __exit__(self, *exc_info):
            signal.raise_signal(signal.SIGINT)
            self.into = None

    twice = Twice()
    with faults.interrupts(), pytest.raises(KeyboardInterrupt), twice:
        pytest.fail("Ctrl-C did not strike")
    assert twice.into is None


def test_a_recording_whose_exit_is_looked_at_and_that_is_entered_again_goes_on():
    with devwidget.record() as recording:
        assert hasattr(recording, "__exit__")
        with pytest.raises(devwidget.DevwidgetError, match="once"):
            recording.__enter__()
        nn.Linear(2, 2)(torch.ones(1, 2))
    with pytest.raises(devwidget.DevwidgetError, match="once"), recording:
        pytest.fail("entered")
    assert recording.trace.ops


class Alarm(Exception):
    """What a test runner raises when a test takes too long."""


@contextlib.contextmanager
def alarms():
    """SIGALRM raises inside the block."""

    def ring(number, frame):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_alarm_that_rings_in_a_traced_step_is_no_failure_of_the_step():
    class Slow(nn.Linear):
        def forward(self, x):
            signal.raise_signal(signal.SIGALRM)

    with alarms(), pytest.raises(Alarm):
        devwidget.trace(Slow(2, 2), torch.ones(1, 2))
