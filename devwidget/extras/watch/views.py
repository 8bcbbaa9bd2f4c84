"""A watched run for a screen: few enough rows, memory by category in recorded steps, and marks."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from devwidget.extras.watch.records.run import PARTS, StepRows, WatchedRun
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.memory import MemoryPoint

MOST_COLUMNS = 400
"""Columns of a figure; more would be less than two pixels wide."""
_ROOM = 1.5
"""Multiple of the time of an unrecorded step: height of the figure, above which recorded steps are cut off."""


class Mark(NamedTuple):
    """Where something was found: the step, the finding, and the recorded step that shows it, if any."""

    step: int
    finding: Finding
    recorded: int | None


class Composition(NamedTuple):
    """Bytes of a device by category at the peak of a recorded step."""

    step: int
    device: DeviceId
    peak: MemoryPoint


def mean_parts(rows: StepRows) -> dict[str, list[float]]:
    """Return seconds of each part per step of each row, without parts that take no time."""
    means = {}
    for part in PARTS:
        taken = getattr(rows, part)
        if any(taken):
            means[part] = [round(each / count / 1e6, 7) for each, count in zip(taken, rows.count, strict=True)]
    return means


def find_highest(rows: StepRows) -> float:
    """Return the seconds of a step up to which a figure shows it: enough for nearly all unrecorded steps."""
    totals: list[float] = [sum(each) for each in zip(*mean_parts(rows).values(), strict=True)] or [0.0]
    plain = [total for total, recorded in zip(totals, rows.recorded, strict=False) if not recorded] or totals
    if len(plain) > 1:
        return _ROOM * statistics.quantiles(plain, n=20)[-1]
    return _ROOM * plain[0]


def list_marks(run: WatchedRun) -> list[Mark]:
    """Return the findings of a run at the steps where they were first seen."""
    return [Mark(step, finding, find_recorded(run, step)) for finding, step in zip(run.findings, run.first_steps, strict=True)]


def find_recorded(run: WatchedRun, step: int) -> int | None:
    """Return the first recorded step from this one on, else the last one before it."""
    number = None
    for each in run.recorded_steps:
        number = each.number
        if number >= step:
            break
    return number


def list_compositions(run: WatchedRun) -> list[Composition]:
    """Return the memory by category of each recorded step and each device with an allocator."""
    found = []
    for step in run.recorded_steps:
        for curve in step.trace.memory:
            if curve.source == "allocator" and curve.peak is not None:
                found.append(Composition(step.number, curve.device, curve.peak))
    return found
