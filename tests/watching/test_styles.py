"""Loops as people write them: silence over the healthy ones, and of each fault one finding, with its line."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch

import devwidget
from tests.watching.loops import line_of
from tests.watching.styles import FAULTY, HEALTHY

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def watch_loop(loop, memory):
    """Its run, as far as it came."""
    runs = []

    def watch(*args, **options):
        runs.append(devwidget.watch(*args, **options))
        return runs[-1]

    torch.manual_seed(0)
    random.seed(0)
    with devwidget.simulate(1, memory=memory), contextlib.suppress(torch.OutOfMemoryError):
        loop(watch)
    return runs[0]


@pytest.mark.parametrize("loop", HEALTHY, ids=lambda each: each.__name__)
def test_a_healthy_loop_is_silent(loop):
    run = watch_loop(loop, "256MiB")
    assert run.findings == ()
    assert run.result.not_checked == ()
    assert run.steps.total >= 150


@pytest.mark.parametrize(("loop", "kind", "line"), [pytest.param(*each, id=each[0].__name__) for each in FAULTY])
def test_a_fault_is_all_that_is_found_and_has_its_line(loop, kind, line):
    run = watch_loop(loop, "1GiB" if kind == "more-memory" else "32MiB")
    assert [(each.kind, line_of(each)) for each in run.findings] == [(kind, line)]
