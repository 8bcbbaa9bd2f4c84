"""A step that hooks begin and end is what `record` sees of the same step; and a run records few of them."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.watch.recorded_steps import LEAST_APART, MOST_CHANGES, WARM_UP, LateLines, RecordingSchedule
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Move, Trace


def operators(trace):
    return Counter({(op.name, op.module, op.phase): op.count for op in trace.ops if not op.name.startswith("profiler::")})


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("has_closure", [False, True])
def test_a_step_that_hooks_record_is_what_record_sees(gpus, has_closure):
    with devwidget.simulate(1) if gpus else contextlib.nullcontext():
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("cuda" if gpus else "cpu")
        optimizer = torch.optim.Adam(model.parameters())
        x = torch.ones(3, 4, device="cuda" if gpus else "cpu")

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        def turn():
            closure()
            optimizer.step()

        with devwidget.watch(model, optimizer) as run:
            for _ in range(12):
                optimizer.step(closure) if has_closure else turn()
        with devwidget.record() as recording:
            recording.attach(model, optimizer)
            turn()
    watched, recorded = run.recorded[WARM_UP], recording.trace
    assert operators(watched) == operators(recorded)
    assert {each.path for each in watched.modules} == {"", "0", "1", "2"}
    assert watched.steps == 1


def test_a_run_of_no_changes_is_recorded_as_often_as_it_was_told():
    schedule = RecordingSchedule(50)
    assert [step for step in range(200) if schedule.find_reason(step)] == [WARM_UP, 60, 110, 160]


def test_a_run_is_recorded_by_itself_only_while_that_takes_little_of_the_time():
    schedule = RecordingSchedule(None)
    schedule.spent, schedule.passed = 1.0, 100.0
    found = [step for step in range(1000) if schedule.find_reason(step)]
    assert found == list(range(WARM_UP, 1000, LEAST_APART))
    schedule.spent = 3.0
    assert not any(schedule.find_reason(step) for step in range(1000, 5000))


def test_changes_are_recorded_a_few_times_whatever_that_costs():
    schedule = RecordingSchedule(None)
    schedule.find_reason(WARM_UP)
    schedule.spent, schedule.passed = 50.0, 100.0
    reasons = []
    for step in range(20, 60):
        schedule.ask_for(Message("a change"))
        reasons.append(schedule.find_reason(step))
    assert len([each for each in reasons if each is not None]) == MOST_CHANGES


def hops(*lines):
    ends = DeviceId("cpu"), DeviceId("cuda", 0)
    return Trace(moves=tuple(Move(*ends, 4, (1,), "float32", None, "other", Site("a.py", line), "explicit") for line in lines))


def test_what_comes_up_in_one_step_alone_is_no_late_line():
    late = LateLines()
    assert late.meet_step(10, hops(1)) == []
    assert late.meet_step(60, hops(1, 2)) == []
    assert late.wants_next
    assert late.meet_step(61, hops(1)) == []
    assert not late.wants_next


def test_what_two_steps_in_a_row_have_is_late_and_told_once():
    late = LateLines()
    for step, lines in ((10, (1,)), (35, (1,)), (60, (1, 2))):
        assert late.meet_step(step, hops(*lines)) == []
    ((move, first, before),) = late.meet_step(61, hops(1, 2))
    assert (move.site.line, first, before) == (2, 60, 35)
    assert late.meet_step(85, hops(1, 2)) == []
    assert not late.wants_next


def test_a_line_that_takes_the_place_of_another_is_no_late_one():
    late = LateLines()
    for step, lines in ((10, (1,)), (60, (2,)), (61, (2,)), (110, (2,)), (160, (2, 3))):
        assert late.meet_step(step, hops(*lines)) == []
    assert [move.site.line for move, _, _ in late.meet_step(161, hops(2, 3))] == [3]


def test_two_steps_that_are_no_neighbours_confirm_nothing():
    late = LateLines()
    for step, lines in ((10, (1,)), (60, (1, 2)), (110, (1, 2))):
        assert late.meet_step(step, hops(*lines)) == []
