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


def recording_model():
    recording = devwidget.record()
    recording.attach(MODEL)
    return recording


def train():
    MODEL(torch.ones(2, 4)).sum().backward()


def train_on_gpus():
    model = nn.Linear(4, 4).cuda()
    model(torch.ones(2, 4).cuda()).sum().backward()


def trained():
    with recording_model():
        train()


def traced():
    devwidget.trace(MODEL, torch.ones(2, 4), loss_fn=torch.sum)


def struck_at_lines(act, every):
    """How many runs, and the lines after which something was left, or whose alarm was lost."""
    act()
    with faults.LinesRun() as lines:
        act()
    counts = {line: count for line, count in lines.counts.items() if not faults.cannot_be_interrupted(line)}
    left, lost, runs = [], [], [(line, nth) for line, count in counts.items() for nth in {1, count}][::every]
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
@pytest.mark.filterwarnings("ignore:the virtual GPUs were never started:RuntimeWarning")  # true, if they are struck before
@pytest.mark.parametrize("act", [recorded, simulated, allowed])
def test_an_alarm_at_a_line_of_an_entry_or_an_exit_leaves_nothing(act, every):
    assert struck_at_lines(act, every) == ([], [])


@pytest.mark.parametrize("act", [trained, traced])
def test_an_alarm_where_torch_switches_gradients_for_us_leaves_nothing(act, monkeypatch):
    monkeypatch.setattr(faults, "OURS", (faults.OURS + "/capture/interrupts.py", torch.autograd.grad_mode.__file__))
    assert struck_at_lines(act, every=1) == ([], [])


def left_by_full_memory(open_block, step, every):
    """The lines of a step after which something was left when an exception was raised there, which no guard can hold back."""
    with open_block(), faults.LinesRun() as lines:
        step()
    counts = {line: count for line, count in lines.counts.items() if not faults.is_end(line)}
    left, runs = [], [(line, nth) for line, count in counts.items() for nth in {1, count}][::every]
    for line, nth in runs:
        before = faults.world()
        with contextlib.suppress(faults.Fault), open_block(), faults.RaiseAt(line, nth):  # some are told of in the trace
            step()
        left += [(line, nth, what) for what in faults.left_behind(before)]
    print(f"{step.__name__}: full memory at {len(runs)} lines, {len(left)} left")
    return left


@each_line_or(199)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what is raised in a finalizer goes nowhere
@pytest.mark.parametrize(("open_block", "step"), [(recording_model, train), (lambda: devwidget.simulate(2), train_on_gpus)])
def test_full_memory_at_a_line_of_a_step_leaves_nothing(open_block, step, every):
    assert left_by_full_memory(open_block, step, every) == []


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
