"""What rows of steps say: memory that creeps, and steps that have become slow; without torch, step by step."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from devwidget.records.watch import PARTS

SEGMENT = 16
"""Steps whose lowest figure, or whose median, counts: evaluations, loggers and lengths of texts come and go within some."""
SEGMENTS = 8
"""In a row, each of which is above the one before by about as much: by chance that happens to nobody."""
LEAST_JUMP = 0.2
"""Of what is allocated: a copy of a model that Adam trains takes a third of it, and a few results of steps less."""
SLOW = 2.0
"""Times as long as in the fastest segment."""
LEAST_SLOWER = 1000
"""Microseconds; below that a machine that does other things too makes the difference."""
_MOST_SWITCHES = 20_000
"""Microseconds for each time that another process had the processor: steps that shared it say nothing."""


class Growth(NamedTuple):
    """Memory that creeps: from which step on, and bytes a step."""

    since: int
    bytes_per_step: float


class _SegmentLows:
    """The lowest figure of each of the last segments, with its first step."""

    def __init__(self, segments: int) -> None:
        self._lows: deque[tuple[int, int]] = deque(maxlen=segments)
        self._segment: list[int] = []

    def add_step(self, number: int, figure: int) -> Sequence[tuple[int, int]] | None:
        """One step more; the lows, if it ends a segment and there are as many as are kept."""
        self._segment.append(figure)
        if len(self._segment) < SEGMENT:
            return None
        self._lows.append((number + 1 - SEGMENT, min(self._segment)))
        self._segment.clear()
        return self._lows if len(self._lows) == self._lows.maxlen else None


class GrowthJudge:
    """The bytes that one device has allocated at the end of each step."""

    def __init__(self) -> None:
        self._lows = _SegmentLows(SEGMENTS)

    def add_step(self, number: int, allocated: int) -> Growth | None:
        """One step more; the growth, if the last segments show one."""
        lows = self._lows.add_step(number, allocated)
        if lows is None:
            return None
        grown = [after - before for (_, before), (_, after) in itertools.pairwise(lows)]
        mean = sum(grown) / len(grown)
        is_steady = mean > 0 and all(mean / 2 <= each <= mean * 2 for each in grown)
        return Growth(lows[0][0], mean / SEGMENT) if is_steady else None


class Jump(NamedTuple):
    """Memory that is higher from some step on, and stays so: about which step, and bytes."""

    since: int
    bytes: int


class JumpJudge:
    """The bytes that one device has allocated at the end of each step, as for growth."""

    def __init__(self) -> None:
        self._lows = _SegmentLows(4)

    def add_step(self, number: int, allocated: int) -> Jump | None:
        """One step more; the jump, if two segments are even, and the two before were so, lower."""
        lows = self._lows.add_step(number, allocated)
        if lows is None:
            return None
        (first, _), (since, _), *_ = lows
        one, two, three, four = (low for _, low in lows)
        jumped = three - two
        is_even = 8 * max(abs(two - one), abs(four - three)) <= jumped
        return Jump(since, jumped) if first and is_even and jumped >= LEAST_JUMP * two else None


class Slowdown(NamedTuple):
    """Steps that take longer: from which step on, microseconds of a step before and now, and the part that takes them.

    `part` is "" if no part takes the half of what they are longer.
    """

    since: int
    before: float
    now: float
    part: str
    part_before: float
    part_now: float


class _Pace(NamedTuple):
    """Microseconds of the steps of one segment: their median, their lower quartile, and the median of each part."""

    first: int
    median: float
    quartile: float
    parts: dict[str, float]


class PaceJudge:
    """The times of the steps that nothing has disturbed, evaluation left out."""

    def __init__(self) -> None:
        self._segment: list[tuple[int, Mapping[str, int]]] = []
        self._fastest: _Pace | None = None
        self._last: _Pace | None = None

    def add_step(self, number: int, times: Mapping[str, int], switches: int = 0) -> Slowdown | None:
        """One step more; whether the last two segments are slow.

        Args:
            number: of the step.
            times: microseconds of each part.
            switches: how often another process had the processor meanwhile.
        """
        if switches * _MOST_SWITCHES > _sum_parts(times):
            return None
        self._segment.append((number, times))
        if len(self._segment) < SEGMENT:
            return None
        pace, before = _measure_pace(self._segment), self._last
        self._segment, self._last = [], pace
        if self._fastest is None or pace.median < self._fastest.median:
            self._fastest = pace
        return _compare_pace(self._fastest, before, pace) if before is not None else None


def _sum_parts(times: Mapping[str, int]) -> int:
    return sum(times.get(part, 0) for part in PARTS if part != "evaluation")


def _measure_pace(segment: list[tuple[int, Mapping[str, int]]]) -> _Pace:
    totals = [_sum_parts(times) for _, times in segment]
    parts = {part: statistics.median(times.get(part, 0) for _, times in segment) for part in PARTS if part != "evaluation"}
    return _Pace(segment[0][0], statistics.median(totals), statistics.quantiles(totals, n=4)[0], parts)


def _compare_pace(fastest: _Pace, before: _Pace, now: _Pace) -> Slowdown | None:
    least = max(SLOW * fastest.median, fastest.median + LEAST_SLOWER)
    if min(before.quartile, now.quartile) < least or before.first < fastest.first:
        return None
    longer = {part: now.parts[part] - fastest.parts[part] for part in now.parts}
    part = max(longer, key=lambda each: longer[each])
    part = part if longer[part] * 2 >= now.median - fastest.median else ""
    return Slowdown(before.first, fastest.median, now.median, part, fastest.parts.get(part, 0), now.parts.get(part, 0))
