"""A step that hooks begin and end is what `record` sees of the same step; and a run records few of them."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.watch.recorded_steps import LEAST_APART, MOST_CHANGES, WARM_UP, RecordingSchedule
from devwidget.records.schema.message import Message


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
