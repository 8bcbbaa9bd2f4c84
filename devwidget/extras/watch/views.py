"""A watched run for a screen: no more rows than it has columns, what memory was for where a step was recorded, and marks."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from devwidget.extras.watch.records.run import PARTS, StepRows, WatchedRun
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.memory import MemoryPoint

MOST_COLUMNS = 400
"""Of a figure: more would be less than two pixels wide."""
_ROOM = 1.5
"""Times what a step takes that was not recorded: the height of the figure, above which recorded ones are cut."""


class Mark(NamedTuple):
    """Where something was found: the step, what, and the recorded step that shows it; None without any."""

    step: int
    finding: Finding
    recorded: int | None


class Composition(NamedTuple):
    """What the bytes of a device were for at the peak of a recorded step."""

    step: int
    device: DeviceId
    peak: MemoryPoint


def mean_parts(rows: StepRows) -> dict[str, list[float]]:
    """Seconds of each part in a step of each row, without parts that take none."""
    means = {}
    for part in PARTS:
        taken = getattr(rows, part)
        if any(taken):
            means[part] = [round(each / count / 1e6, 7) for each, count in zip(taken, rows.count, strict=True)]
    return means


def find_highest(rows: StepRows) -> float:
    """Seconds of a step up to which a figure shows it: what nearly all steps take that were not recorded."""
    totals: list[float] = [sum(each) for each in zip(*mean_parts(rows).values(), strict=True)] or [0.0]
    plain = [total for total, recorded in zip(totals, rows.recorded, strict=False) if not recorded] or totals
    if len(plain) > 1:
        return _ROOM * statistics.quantiles(plain, n=20)[-1]
    return _ROOM * plain[0]


def list_marks(run: WatchedRun) -> list[Mark]:
    """The findings of a run where they were first seen."""
    return [Mark(step, finding, find_recorded(run, step)) for finding, step in zip(run.findings, run.first_steps, strict=True)]


def find_recorded(run: WatchedRun, step: int) -> int | None:
    """The first step that was recorded from this one on, or else the last before it."""
    number = None
    for each in run.recorded_steps:
        number = each.number
        if number >= step:
            break
    return number


def list_compositions(run: WatchedRun) -> list[Composition]:
    """What memory was for, of each recorded step and each device whose allocator told."""
    found = []
    for step in run.recorded_steps:
        for curve in step.trace.memory:
            if curve.source == "allocator" and curve.peak is not None:
                found.append(Composition(step.number, curve.device, curve.peak))
    return found
