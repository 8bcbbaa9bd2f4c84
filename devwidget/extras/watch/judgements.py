"""Find steady memory growth and slow steps in the rows of a run; without torch, step by step."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from devwidget.extras.watch.records.run import FIRST, PARTS

SEGMENT = 16
"""Steps in a segment. Its minimum or median counts, because evaluations, loggers and text lengths vary."""
SEGMENTS = 8
"""Consecutive segments, each above the one before by about as much; that does not happen by chance."""
SLOW = 2.0
"""Multiple of the time of the fastest segment."""
LEAST_SLOWER = 1000
"""Microseconds; smaller differences come from other work of the machine."""
_EVEN, _UNEVEN = 2, 4
"""Consecutive slow segments that are needed if nearly every step is slow, and if only the mean is."""
WAITED, ELEMENTS = "waited", "elements"
"""Columns: microseconds in which other programs had the processor, and elements of the inputs."""
_STEP_PARTS = tuple(part for part in PARTS if part != "evaluation")

Row = Mapping[str, int]
Average = Callable[[Iterable[float]], float]


class Window:
    """The last rows of a run, one per step, in segments."""

    def __init__(self) -> None:
        self._rows = deque[Row](maxlen=SEGMENT * SEGMENTS)
        self._count = 0

    def add_row(self, row: Row) -> bool:
        """Add one step; return whether it ends a segment."""
        self._rows.append(row)
        self._count += 1
        return self._count % SEGMENT == 0

    @property
    def oldest(self) -> Row:
        """Return the first row of the window."""
        return self._rows[0]

    def __len__(self) -> int:
        return len(self._rows)

    def list_lows(self, name: str, segments: int) -> list[tuple[int, int]]:
        """Return the minimum of each of the last segments with its first step; [] if a row lacks the number."""
        rows = list(self._rows)[-segments * SEGMENT :]
        if len(rows) < segments * SEGMENT or not all(name in row for row in rows):
            return []
        parts = [rows[at : at + SEGMENT] for at in range(0, len(rows), SEGMENT)]
        return [(part[0][FIRST], min(map(itemgetter(name), part))) for part in parts]

    @property
    def newest(self) -> list[Row]:
        """Return the rows of the last segment."""
        return list(self._rows)[-SEGMENT:]


class Growth(NamedTuple):
    """Steady memory growth: the step since which it grows, and bytes per step."""

    since: int
    bytes_per_step: float


class GrowthJudge:
    """Decide whether a number grows steadily, such as the bytes that a device has allocated after each step."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._since: int | None = None

    def look(self, window: Window) -> Growth | None:
        """Return the growth if the last segments show one, with the step since which it is unbroken."""
        lows = window.list_lows(self._name, SEGMENTS)
        grown = [after - before for (_, before), (_, after) in itertools.pairwise(lows)]
        mean = statistics.fmean(grown) if grown else 0.0
        if mean <= 0 or not all(mean / 2 <= each <= mean * 2 for each in grown):
            self._since = None
            return None
        self._since = lows[0][0] if self._since is None else self._since
        return Growth(self._since, mean / SEGMENT)


class Slowdown(NamedTuple):
    """Steps that take longer: since which step, microseconds before and now, and the part that takes the time.

    `part` is "" if no part takes half of the difference.
    """

    since: int
    before: float
    now: float
    part: str
    part_before: float
    part_now: float


class _Pace(NamedTuple):
    """Microseconds of the steps of one segment, averaged, and of their parts.

    Attributes:
        first: Number of the first step.
        elements: Elements of the inputs.
        own: Without the time of other programs.
        least: What nearly every step takes, or all steps together.
        total: With the time of other programs.
        parts: The same for each part.
    """

    first: int
    elements: float
    own: float
    least: float
    total: float
    parts: Mapping[str, float]


class PaceJudge:
    """Decide whether steps have become slow, without evaluation: nearly every step, or the mean over more segments.

    Batches of several workers arrive together, then none for a while; only the mean shows that.
    """

    def __init__(self) -> None:
        self._even = _PaceSearch(statistics.median, _EVEN, lambda own: statistics.quantiles(own, n=4)[0])
        self._uneven = _PaceSearch(statistics.fmean, _UNEVEN, statistics.fmean)

    def look(self, window: Window) -> Slowdown | None:
        """Return a slowdown in the last segments, not caused by other programs or longer inputs."""
        rows = window.newest
        even, uneven = self._even.look(rows), self._uneven.look(rows)
        return even or uneven


class _PaceSearch:
    """Find segments that are slower than the fastest, by one average.

    Args:
        average: Average over the steps of a segment.
        segments: Number of consecutive segments that must be slow.
        least: The number that must be slow in a segment.
    """

    def __init__(self, average: Average, segments: int, least: Callable[[list[int]], float]) -> None:
        self._average, self._least = average, least
        self._last = deque[_Pace](maxlen=segments)
        self._fastest: _Pace | None = None

    def look(self, rows: Sequence[Row]) -> Slowdown | None:
        """Return a slowdown that ends with these rows."""
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
    """Return the microseconds that count as slow: attention is quadratic in the length of inputs."""
    times = 1.0
    if before.elements:
        times = max(1.0, now.elements / before.elements)
    expected = before.own * times * times
    return max(SLOW * expected, expected + LEAST_SLOWER)
