"""Which rank came last to each recent collective, by comparable clocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from devwidget.extras.ranks.records.cluster import Arrivals
from devwidget.extras.ranks.records.rank import PastCollective, RankReport

_Key = tuple[str, int, int, int]
"""A collective: group, its lowest rank, its size, and the number of the collective."""
_FEWEST = 3
"""Number of ranks from which one can be called late; with two, each is late for the other."""


def find_arrivals(reports: Iterable[RankReport]) -> tuple[Arrivals, ...]:
    """Return the collectives that every rank of their group has called, in order of their start."""
    told = [report for report in reports if report.last]
    ahead = _find_clocks(told)
    came: dict[_Key, list[tuple[float, int, PastCollective]]] = {}
    for report in told:
        late = ahead.get(_clock_of(report), math.nan)
        for each in () if math.isnan(late) else report.last:
            came.setdefault((each.group, each.first, each.size, each.sequence), []).append(
                (each.begun - late, report.rank, each)
            )
    whole = (times for (*_, size, _), times in came.items() if len(times) == size >= _FEWEST)
    found = map(_describe, whole)
    return tuple(sorted(found, key=lambda each: each.begun))


def _describe(times: list[tuple[float, int, PastCollective]]) -> Arrivals:
    first, *_, (before, *_), (last, rank, call) = sorted(times, key=lambda each: each[:2])
    return Arrivals(call.group, call.sequence, call.kind, len(times), rank, last - before, first[0])


def _clock_of(report: RankReport) -> str:
    """Return what identifies a clock: processes under one kernel share it."""
    return report.machine.partition(" ")[0] or report.host


def _find_clocks(reports: list[RankReport]) -> dict[str, float]:
    """Return the offset of the clock of each machine from the first one.

    Ranks end a common step together, so a constant difference between machines is an offset, or a rank that is late after the
    step: then no rank is called late, rather than a wrong one. Without a common step there are no offsets.
    """
    ends: dict[str, dict[int, list[float]]] = {}
    for report in reports:
        by_step = ends.setdefault(_clock_of(report), {})
        for step, at in report.ends:
            by_step.setdefault(step, []).append(at)
    if not ends:
        return {}
    first, *others = ends
    ahead = {first: 0.0}
    for clock in others:
        common = ends[first].keys() & ends[clock].keys()
        if common:
            ahead[clock] = statistics.median(
                statistics.median(ends[clock][step]) - statistics.median(ends[first][step]) for step in common
            )
    return ahead
