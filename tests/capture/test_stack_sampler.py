"""Who looks at another thread keeps nothing of it, ends before a fork, and is gone with the run."""

from __future__ import annotations

import os
import threading
import time
import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture import stack_sampler
from devwidget.capture.stack_sampler import StackSampler


def lookers():
    return [thread for thread in threading.enumerate() if thread.name == "devwidget-lines"]


def rest():
    time.sleep(0.2)


def spin():
    until = time.perf_counter() + 0.2
    while time.perf_counter() < until:
        pass


@pytest.fixture
def sampler():
    sampler = StackSampler(threading.get_ident(), "data")
    yield sampler
    sampler.end()
    assert not lookers()


def test_each_line_has_its_share_of_the_time_of_its_part(sampler):
    sampler.begin()
    spin()
    sampler.take_part("forward")
    rest()
    sampler.take_part("data")
    sampler.take_step(7, counts=True)
    sampler.end()
    (first, *_) = sampler.sum_up().lines
    assert first[0].text == "time.sleep(0.2)"
    assert first[1] > 0.8
    assert sampler.steps == (7, 7)


def test_lines_share_the_time_of_one_part(sampler):
    sampler.begin()
    rest()
    spin()
    sampler.take_part("data")
    sampler.take_step(1, counts=True)
    shares = {site.function: share for site, share, _ in sampler.sum_up().lines}
    assert shares["rest"] == pytest.approx(0.5, abs=0.35)


def test_what_is_ours_and_what_was_recorded_counts_for_nothing(sampler):
    sampler.begin()
    rest()
    sampler.take_part("")
    sampler.take_step(1, counts=True)
    rest()
    sampler.take_part("data")
    sampler.take_step(2, counts=False)
    assert sampler.sum_up().lines == ()


def test_what_was_seen_keeps_no_variable_alive(sampler):
    def hold():
        kept = nn.Linear(1, 1)
        rest()
        return weakref.ref(kept)

    sampler.begin()
    assert hold()() is None


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_nobody_looks_while_a_process_is_forked(sampler):
    sampler.begin()
    if (child := os.fork()) == 0:
        os._exit(len(lookers()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not lookers()
    sampler.take_step(1, counts=True)
    assert lookers()


def test_a_failure_of_ours_is_noted_and_nobody_looks_any_more(monkeypatch):
    monkeypatch.setattr(stack_sampler.StackSampler, "_look", lambda _: 1 / 0)
    model = nn.Linear(2, 2)
    run = devwidget.watch(model)
    with run:
        run._slow_steps._begin_sampler("")
        time.sleep(0.05)
        model(torch.ones(1, 2))
    assert run.result.not_checked == ("watch: ZeroDivisionError: division by zero",)
    assert not lookers()


@pytest.mark.parametrize("end", [None, KeyboardInterrupt])
def test_nobody_looks_after_the_run(end):
    model = nn.Linear(2, 2)
    run = devwidget.watch(model)
    try:
        with run:
            run._slow_steps._begin_sampler("data")
            model(torch.ones(1, 2))
            assert lookers()
            if end is not None:
                raise end
    except KeyboardInterrupt:
        pass
    assert not lookers()
