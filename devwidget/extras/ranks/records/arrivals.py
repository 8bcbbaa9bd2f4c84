"""Who came last to each of the last collectives, by clocks that can be compared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from devwidget.extras.ranks.records.cluster import Arrivals
from devwidget.extras.ranks.records.rank import PastCollective, RankReport

_Key = tuple[str, int, int, int]
"""A collective: group, its lowest rank, its size, and the number in it."""
_FEWEST = 3
"""Ranks of which one can be late: of two nobody is the odd one."""


def find_arrivals(reports: Iterable[RankReport]) -> tuple[Arrivals, ...]:
    """Collectives that every rank of their group has begun, in the order in which they were begun."""
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
    """Processes under one kernel share a clock; a machine is told by that and by how it numbers its processes."""
    return report.machine.partition(" ")[0] or report.host


def _find_clocks(reports: list[RankReport]) -> dict[str, float]:
    """By how much the clock of each machine is ahead of the first one.

    Ranks that meet in every step end it together, so what is constant between machines is their clocks, or one that is late
    in the step after they have met: then nobody is called late, rather than one who is not. Without a common step, none.
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
