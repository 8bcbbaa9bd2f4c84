"""What rows of steps say: memory that creeps, and steps that have become slow; without torch, step by step."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from devwidget.extras.watch.records.run import PARTS

SEGMENT = 16
"""Steps whose lowest figure, or whose median, counts: evaluations, loggers and lengths of texts come and go within some."""
SEGMENTS = 8
"""In a row, each of which is above the one before by about as much: by chance that happens to nobody."""
LEAST_JUMP = 0.2
"""Of what is allocated: a copy of a model that Adam trains takes a third of it, and a few results of steps less."""
LEAST_JUMP_BYTES = 20 * 2**20
"""The piece that CUDA's caching allocator takes from a card at a time (`kLargeBuffer`): by less, a card need not be fuller."""
SLOW = 2.0
"""Times as long as in the fastest segment."""
LEAST_SLOWER = 1000
"""Microseconds; below that a machine that does other things too makes the difference."""
_EVEN, _UNEVEN = 2, 4
"""Segments that have to be slow in a row, where nearly each of their steps is, and where their steps together are."""


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
        self._since: int | None = None

    def add_step(self, number: int, allocated: int) -> Growth | None:
        """One step more; the growth, if the last segments show one, since when they have done so without a break."""
        lows = self._lows.add_step(number, allocated)
        if lows is None:
            return None
        grown = [after - before for (_, before), (_, after) in itertools.pairwise(lows)]
        mean = sum(grown) / len(grown)
        is_steady = mean > 0 and all(mean / 2 <= each <= mean * 2 for each in grown)
        if not is_steady:
            self._since = None
            return None
        self._since = lows[0][0] if self._since is None else self._since
        return Growth(self._since, mean / SEGMENT)


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
        return Jump(since, jumped) if first and is_even and jumped >= max(LEAST_JUMP * two, LEAST_JUMP_BYTES) else None


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


class _Taken(NamedTuple):
    """Microseconds of the steps of one segment, usual ones or means, and of their parts; `own` without what others had.

    `elements` are those of the inputs.
    """

    elements: float
    own: float
    total: float
    parts: Mapping[str, float]


class _Pace(NamedTuple):
    """The steps of one segment.

    Attributes:
        first: number of the first step.
        least: microseconds of the lower quartile, without what others had.
        usual: by medians.
        mean: which the batches of several workers have in common: they come at once, and then none does for a while.
    """

    first: int
    least: float
    usual: _Taken
    mean: _Taken


class PaceJudge:
    """The times of the steps, evaluation left out."""

    def __init__(self) -> None:
        self._segment: list[tuple[int, Mapping[str, int], int, int]] = []
        self._last: deque[_Pace] = deque(maxlen=_UNEVEN)
        self._usual: _Pace | None = None
        self._mean: _Pace | None = None

    def add_step(self, number: int, times: Mapping[str, int], waited: int = 0, elements: int = 0) -> Slowdown | None:
        """One step more; whether the last segments are slow.

        Args:
            number: of the step.
            times: microseconds of each part.
            waited: microseconds in which others had the processor: steps are not slow for that.
            elements: of the inputs, whose square attention takes: nor are they slow for more of those.
        """
        self._segment.append((number, times, waited, elements))
        if len(self._segment) < SEGMENT:
            return None
        pace = _measure_pace(self._segment)
        self._segment = []
        self._last.append(pace)
        self._usual = pace if self._usual is None or pace.usual.own < self._usual.usual.own else self._usual
        self._mean = pace if self._mean is None or pace.mean.own < self._mean.mean.own else self._mean
        return self._find_even() or self._find_uneven()

    def _find_even(self) -> Slowdown | None:
        """Nearly each step takes long."""
        fastest, last = self._usual, list(self._last)[-_EVEN:]
        if fastest is None or len(last) < _EVEN or last[0].first < fastest.first:
            return None
        is_slow = min(pace.least for pace in last) >= _least_slow(fastest.usual, last[-1].usual)
        return _compare_pace(last[0].first, fastest.usual, last[-1].usual) if is_slow else None

    def _find_uneven(self) -> Slowdown | None:
        """All together do: that takes longer to tell from what happens now and then."""
        fastest, last = self._mean, list(self._last)
        if fastest is None or len(last) < _UNEVEN or last[0].first < fastest.first:
            return None
        is_slow = min(pace.mean.own for pace in last) >= _least_slow(fastest.mean, last[-1].mean)
        return _compare_pace(last[0].first, fastest.mean, last[-1].mean) if is_slow else None


def _least_slow(before: _Taken, now: _Taken) -> float:
    times = max(1.0, now.elements / before.elements) if before.elements else 1.0
    expected = before.own * times * times
    return max(SLOW * expected, expected + LEAST_SLOWER)


def _sum_parts(times: Mapping[str, int]) -> int:
    return sum(times.get(part, 0) for part in PARTS if part != "evaluation")


def _measure_pace(segment: list[tuple[int, Mapping[str, int], int, int]]) -> _Pace:
    totals = [_sum_parts(times) for _, times, *_ in segment]
    own = [max(0, total - waited) for total, (_, _, waited, _) in zip(totals, segment, strict=True)]
    parts = {part: [times.get(part, 0) for _, times, *_ in segment] for part in PARTS if part != "evaluation"}
    elements = statistics.fmean(each for *_, each in segment)
    usual, mean = (
        _Taken(elements, average(own), average(totals), {part: average(taken) for part, taken in parts.items()})
        for average in (statistics.median, statistics.fmean)
    )
    return _Pace(segment[0][0], statistics.quantiles(own, n=4)[0], usual, mean)


def _compare_pace(since: int, before: _Taken, now: _Taken) -> Slowdown:
    longer = {part: taken - before.parts[part] for part, taken in now.parts.items()}
    part = max(longer, key=lambda each: longer[each])
    part = part if longer[part] * 2 >= now.total - before.total else ""
    return Slowdown(since, before.total, now.total, part, before.parts.get(part, 0), now.parts.get(part, 0))
