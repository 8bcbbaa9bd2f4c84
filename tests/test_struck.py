"""Signals and full memory at every line of ours, and signals in bursts: nothing is left, and no signal is lost."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture import background_births
from devwidget.capture.patching import mode_stack as modes
from devwidget.capture.recording.allowed_transfers import why_allowed
from tests import faults

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has neither SIGALRM nor bursts of SIGINT")
BURSTS, SIZES, GAPS_S = 200, (2, 3, 5, 16), (0.0, 1e-5, 1e-4, 3e-4, 1e-3)
SENDER = """
import mmap, os, signal, sys, time
done = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 1)

def wait(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass

for line in sys.stdin:
    delay, count, gap = map(float, line.split())
    wait(delay)
    for _ in range(int(count)):
        os.kill(os.getppid(), signal.SIGINT)
        wait(gap)
    done[0] = 1
"""


class Alarm(Exception):
    """What a test runner raises when a test takes too long."""


class AlarmAt(faults._At):
    def strike(self):
        signal.raise_signal(signal.SIGALRM)


@contextlib.contextmanager
def no_callbacks():
    """What other libraries run at each garbage collection, or for an exception in a callback, is no place to raise in."""
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    hook, sys.unraisablehook = sys.unraisablehook, sys.__unraisablehook__
    try:
        yield
    finally:
        gc.callbacks[:], sys.unraisablehook = callbacks, hook


@contextlib.contextmanager
def handling(number, handler):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def ring(number, frame):
    raise Alarm


def recorded():
    with devwidget.record():
        pass


def simulated():
    with devwidget.simulate(2):
        pass


def allowed():
    with devwidget.allow("cuda:0 -> cpu", why="meant"):
        pass


MODEL = nn.Linear(4, 4)  # torch's own `no_grad`, in which it is made, may be left on by Ctrl-C


def trained():
    with devwidget.record() as recording:
        recording.attach(MODEL)
        MODEL(torch.ones(2, 4)).sum().backward()


def trained_on_gpus():
    with devwidget.simulate(2):
        model = nn.Linear(4, 4).cuda()
        model(torch.ones(2, 4).cuda()).sum().backward()


def traced():
    devwidget.trace(MODEL, torch.ones(2, 4), loss_fn=torch.sum)


def struck_at_lines(act, every):
    """How many runs, and the lines after which something was left, or whose alarm was lost."""
    act()
    with faults.LinesRun() as lines:
        act()
    left, lost, runs = [], [], [(line, nth) for line, count in lines.counts.items() for nth in {1, count}][::every]
    for line, nth in runs:
        before = faults.world()
        try:
            with handling(signal.SIGALRM, ring), AlarmAt(line, nth):
                act()
            lost.append(line)
        except Alarm:
            pass
        left += [(line, what) for what in faults.left_behind(before)]
    print(f"{act.__name__}: an alarm at {len(runs)} lines, {len(left)} left, {len(lost)} lost")
    return left, lost


def each_line_or(every):
    """So many lines between those that are struck; all are in the fuzz loops."""
    everywhere = pytest.param(1, marks=[pytest.mark.fuzz, pytest.mark.timeout(900)])
    return pytest.mark.parametrize("every", [every, everywhere])


@each_line_or(41)
@pytest.mark.parametrize("act", [recorded, simulated, allowed])
def test_an_alarm_at_a_line_of_an_entry_or_an_exit_leaves_nothing(act, every):
    assert struck_at_lines(act, every) == ([], [])


@pytest.mark.parametrize("act", [trained, traced])
def test_an_alarm_where_torch_switches_gradients_for_us_leaves_nothing(act, monkeypatch):
    monkeypatch.setattr(faults, "OURS", (faults.OURS + "/capture/interrupts.py", torch.autograd.grad_mode.__file__))
    assert struck_at_lines(act, every=1) == ([], [])


def watched():
    """Births between recordings, which two calls begin and end: the second is made again if it is cut short."""
    try:
        background_births.begin_watching()
        background_births.end_watching()
    finally:
        background_births.end_watching()


def simulated_by_hand():
    simulation = devwidget.simulate(2, compute=False)
    try:
        simulation.start()
        simulation.stop()
    finally:
        simulation.stop()


def left_by_full_memory(act, every, look=faults.world):
    """The lines after which something was left when an exception was raised there, which no guard can hold back."""
    act()
    with faults.LinesRun() as lines:
        act()
    left, runs = [], [(line, nth) for line, count in lines.counts.items() for nth in {1, count}][::every]
    for line, nth in runs:
        before = look()
        with contextlib.suppress(faults.Fault), faults.RaiseAt(line, nth):  # some are told of in the trace
            act()
        left += [(line, nth, what) for what in faults.differences(before, look())]
    print(f"{act.__name__}: full memory at {len(runs)} lines, {len(left)} left")
    return left


@each_line_or(41)
@pytest.mark.parametrize("act", [recorded, simulated, simulated_by_hand, allowed, watched])
def test_full_memory_at_a_line_of_an_entry_or_an_exit_leaves_nothing(act, every):
    assert left_by_full_memory(act, every) == []


@each_line_or(199)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what is raised in a finalizer goes nowhere
@pytest.mark.parametrize("act", [trained, trained_on_gpus])
def test_full_memory_at_a_line_of_a_step_leaves_nothing(act, every):
    assert left_by_full_memory(act, every) == []


def left_by_trace(every):
    """The same of a step, after which the model is to be as it was too."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)

    def step():
        devwidget.trace(model, torch.ones(2, 4), loss_fn=torch.sum, optimizer=optimizer)

    def look():
        tensors = {name: str(tensor.tolist()) for name, tensor in model.state_dict().items()}
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        return {
            **faults.world(),
            "model": dict.fromkeys(tensors.items()),
            "gradients": gradients,
            "state": dict(optimizer.state),
        }

    return left_by_full_memory(step, every, look)


def test_full_memory_at_a_line_of_a_mode_leaves_no_mode():
    def entered():
        with modes.FunctionMode(), modes.DispatchMode():
            pass

    assert left_by_full_memory(entered, every=1) == []


@each_line_or(399)
def test_full_memory_at_a_line_of_a_trace_leaves_nothing(every):
    assert left_by_trace(every) == []


def test_a_pattern_that_full_memory_cut_short_allows_nothing_any_more():
    with faults.LinesRun() as lines:
        allowed()
    for line in lines.counts:
        with contextlib.suppress(faults.Fault), faults.RaiseAt(line):
            allowed()
        assert why_allowed(torch.device("cuda:0"), torch.device("cpu"), ()) == "", line


class Strikes:
    """A handler of SIGINT that raises in one function and what it calls, and nowhere else."""

    def __init__(self, function):
        self._code, self.count = function.__code__, 0

    def __call__(self, number, frame):
        self.count += 1
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        if frame is not None:
            raise KeyboardInterrupt


@pytest.mark.fuzz
@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize("act", [trained, traced, simulated])
def test_bursts_of_ctrl_c_leave_nothing(act, tmp_path):
    def struck(child, order):
        os.write(child.stdin.fileno(), order)
        act()

    chosen, file, strikes = random.Random(0), tmp_path / "done", Strikes(struck)
    file.write_bytes(bytes(1))
    act()
    started = time.perf_counter()
    act()
    took, left, lost = time.perf_counter() - started, [], 0
    command = [sys.executable, "-c", SENDER, str(file)]
    with (
        no_callbacks(), open(file, "r+b") as opened, mmap.mmap(opened.fileno(), 1) as done, handling(signal.SIGINT, strikes),
        subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as child,
    ):  # fmt: skip
        for _ in range(BURSTS):
            before, done[0], strikes.count = faults.world(), 0, 0
            order = f"{chosen.random() * took} {chosen.choice(SIZES)} {chosen.choice(GAPS_S)}\n".encode()
            with contextlib.suppress(KeyboardInterrupt):
                struck(child, order)
            while not done[0]:
                time.sleep(0.001)
            left += faults.left_behind(before)
            lost += not strikes.count
        child.stdin.close()
    print(f"{act.__name__}: {BURSTS} bursts, {len(left)} left, {lost} lost")
    assert (left, lost) == ([], 0)
