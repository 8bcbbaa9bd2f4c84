"""What rows of steps say: memory that creeps, and steps that have become slow; without torch, step by step."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from devwidget.extras.watch.records.run import FIRST, PARTS

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
WAITED, ELEMENTS = "waited", "elements"
"""Columns: microseconds in which others had the processor, and elements of the inputs."""
_STEP_PARTS = tuple(part for part in PARTS if part != "evaluation")

Row = Mapping[str, int]
Average = Callable[[Iterable[float]], float]


class Window:
    """The last rows of a run, one a step, in segments."""

    def __init__(self) -> None:
        self._rows = deque[Row](maxlen=SEGMENT * SEGMENTS)
        self._count = 0

    def add_row(self, row: Row) -> bool:
        """One step more; whether it ends a segment."""
        self._rows.append(row)
        self._count += 1
        return self._count % SEGMENT == 0

    @property
    def oldest(self) -> Row:
        """The first row of the window."""
        return self._rows[0]

    def __len__(self) -> int:
        return len(self._rows)

    def list_lows(self, name: str, segments: int) -> list[tuple[int, int]]:
        """The lowest figure of each of the last segments, with its first step; [] where some row has no such figure."""
        rows = list(self._rows)[-segments * SEGMENT :]
        if len(rows) < segments * SEGMENT or not all(name in row for row in rows):
            return []
        parts = [rows[at : at + SEGMENT] for at in range(0, len(rows), SEGMENT)]
        return [(part[0][FIRST], min(map(itemgetter(name), part))) for part in parts]

    @property
    def newest(self) -> list[Row]:
        """The rows of the last segment."""
        return list(self._rows)[-SEGMENT:]


class Growth(NamedTuple):
    """Memory that creeps: from which step on, and bytes a step."""

    since: int
    bytes_per_step: float


class GrowthJudge:
    """Whether a figure creeps, such as the bytes that one device has allocated at the end of each step."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._since: int | None = None

    def look(self, window: Window) -> Growth | None:
        """The growth, if the last segments show one, since when they have done so without a break."""
        lows = window.list_lows(self._name, SEGMENTS)
        grown = [after - before for (_, before), (_, after) in itertools.pairwise(lows)]
        mean = statistics.fmean(grown) if grown else 0.0
        if mean <= 0 or not all(mean / 2 <= each <= mean * 2 for each in grown):
            self._since = None
            return None
        self._since = lows[0][0] if self._since is None else self._since
        return Growth(self._since, mean / SEGMENT)


class Jump(NamedTuple):
    """Memory that is higher from some step on, and stays so: about which step, and bytes."""

    since: int
    bytes: int


def find_jump(window: Window, name: str) -> Jump | None:
    """The jump of a figure, if two segments are even, and the two before were so, lower."""
    lows = window.list_lows(name, 4)
    if not lows or lows[0][0] == 0:  # the first steps have yet to make what the others have
        return None
    one, two, three, four = (low for _, low in lows)
    jumped = three - two
    is_even = 8 * max(abs(two - one), abs(four - three)) <= jumped
    if is_even and jumped >= max(LEAST_JUMP * two, LEAST_JUMP_BYTES):
        return Jump(lows[1][0], jumped)
    return None


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
    """Microseconds of the steps of one segment, on some average, and of their parts.

    Attributes:
        first: number of the first step.
        elements: of the inputs.
        own: without what others had.
        least: what nearly each of the steps takes, or all of them together.
        total: with what others had.
        parts: likewise.
    """

    first: int
    elements: float
    own: float
    least: float
    total: float
    parts: Mapping[str, float]


class PaceJudge:
    """Whether steps have become slow, evaluation left out: nearly each of them, or in more segments all of them together.

    The batches of several workers come at once, and then none does for a while: that is seen in the mean alone.
    """

    def __init__(self) -> None:
        self._even = _PaceSearch(statistics.median, _EVEN, lambda own: statistics.quantiles(own, n=4)[0])
        self._uneven = _PaceSearch(statistics.fmean, _UNEVEN, statistics.fmean)

    def look(self, window: Window) -> Slowdown | None:
        """What the last segments show. Steps are not slow for time in which others had the processor, nor for longer inputs."""
        rows = window.newest
        even, uneven = self._even.look(rows), self._uneven.look(rows)
        return even or uneven


class _PaceSearch:
    """Segments that are slow beside the fastest, by one average.

    Args:
        average: of the steps of a segment.
        segments: that have to be slow in a row.
        least: what has to be slow of the steps of a segment.
    """

    def __init__(self, average: Average, segments: int, least: Callable[[list[int]], float]) -> None:
        self._average, self._least = average, least
        self._last = deque[_Pace](maxlen=segments)
        self._fastest: _Pace | None = None

    def look(self, rows: Sequence[Row]) -> Slowdown | None:
        """What the last segments show, of which these rows are the newest."""
        pace = self._measure(rows)
        self._last.append(pace)
        if self._fastest is None or pace.own < self._fastest.own:
            self._fastest = pace
        before, since = self._fastest, self._last[0].first
        is_full = len(self._last) == self._last.maxlen
        if not is_full or since < before.first or min(each.least for each in self._last) < _least_slow(before, pace):
            return None
        longer = {part: taken - before.parts[part] for part, taken in pace.parts.items()}
        part = max(longer, key=lambda each: longer[each])
        if longer[part] * 2 < pace.total - before.total:
            part = ""
        return Slowdown(since, before.total, pace.total, part, before.parts.get(part, 0), pace.parts.get(part, 0))

    def _measure(self, rows: Sequence[Row]) -> _Pace:
        parts = {part: [row.get(part, 0) for row in rows] for part in _STEP_PARTS}
        totals = [sum(each) for each in zip(*parts.values(), strict=True)]
        own = [max(0, total - row[WAITED]) for total, row in zip(totals, rows, strict=True)]
        return _Pace(
            first=rows[0][FIRST],
            elements=statistics.fmean(row[ELEMENTS] for row in rows),
            own=self._average(own),
            least=self._least(own),
            total=self._average(totals),
            parts={part: self._average(taken) for part, taken in parts.items()},
        )


def _least_slow(before: _Pace, now: _Pace) -> float:
    """Microseconds that are slow: of longer inputs attention takes the square."""
    if before.elements:
        times = max(1.0, now.elements / before.elements)
    else:
        times = 1.0
    expected = before.own * times * times
    return max(SLOW * expected, expected + LEAST_SLOWER)
