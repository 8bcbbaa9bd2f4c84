"""Trials run where no other thread and no other process can notice: threads that wait for work are no others."""

import logging
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import devwidget
from tests.trying.models import Faulty, first_fix, traced


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


@pytest.fixture
def beside():
    """Runs a function in a thread until the test ends."""
    stop, threads = threading.Event(), []

    def begin(act):
        begun = threading.Event()

        def run():
            while not stop.wait(0.001):
                act()
                begun.set()

        threads.append(threading.Thread(target=run, name="beside"))
        threads[-1].start()
        begun.wait(10)

    yield begin
    stop.set()
    for thread in threads:
        thread.join()


def train():
    layer = nn.Linear(4, 4)
    layer(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("act", [train, lambda: sum(range(1000))])
def test_a_thread_of_the_program_has_fixes_offered(beside, act):
    beside(act)
    trace = traced(Faulty())
    assert (trace.step_runs, first_fix(trace).not_tried) == (1, "another thread is running: `beside`")


def test_a_rank_of_a_job_has_fixes_offered(monkeypatch):
    """It would run the step alone, and the others would wait for it."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one of its own there and leaves it
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        trace = traced(Faulty())
    finally:
        torch.distributed.destroy_process_group()
    assert (trace.step_runs, first_fix(trace).not_tried) == (1, "the job has several processes")


def test_idle_workers_of_pools_do_not_matter():
    with ThreadPoolExecutor(2) as pool:
        pool.submit(train).result()
        assert first_fix(traced(Faulty())).verified


def test_a_thread_that_waits_for_this_one_to_end_does_not_matter():
    found = []
    thread = threading.Thread(target=lambda: found.append(traced(Faulty())))
    thread.start()
    thread.join()
    assert not first_fix(found[0]).not_tried
    assert found[0].step_runs > 1


def test_every_line_that_another_thread_prints_during_trials_arrives(beside, capsys):
    def act():
        lines.append(f"line {len(lines)}")
        print(lines[-1])

    lines = []
    beside(act)
    assert first_fix(traced(Faulty(lambda: print("step")), verify=True)).verified
    count, out = len(lines), capsys.readouterr().out
    assert all(f"{line}\n" in out for line in lines[: count - 1])
    assert out.count("step\n") == 1


def test_three_threads_that_trace_at_once_leave_streams_and_reports_as_they_were():
    before = sys.stdout, sys.stderr, sys.stdout.write, warnings.showwarning, logging.Logger.handle, logging.root.manager.disable
    own = dict(vars(sys.stdout))
    threads = [threading.Thread(target=lambda: traced(Faulty(), verify=True)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = sys.stdout, sys.stderr, sys.stdout.write, warnings.showwarning, logging.Logger.handle, logging.root.manager.disable
    assert after == before
    assert vars(sys.stdout) == own
