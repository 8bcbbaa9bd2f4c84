"""Ribbons between boxes in columns: out of a side, down a lane of the gutter, along a channel between rows, in with a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from devwidget.views.sums import group_by

LANE = 8.0
"""Pixels from ribbon to ribbon where they are parallel."""
CORNER = 5.0
LABEL = 19.0
"""Height in a channel for heads and their labels."""
PORT, PORT_SHARE, _FIRST_PORT = 84.0, 0.4, 18.0
"""Pixels between the heads on one box, and between its edge and the first; at most a share of its width."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class RibbonBox:
    """A box by its row and column, and where it lies."""

    row: int
    column: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Ribbon:
    """From box to box.

    Attributes:
        rises: it enters its target from below.
        bundle: those with the same one share lanes and ports; "" for one by itself.
    """

    source: RibbonBox
    target: RibbonBox
    rises: bool = False
    bundle: str = ""

    @property
    def to_right(self) -> bool:
        """Whether its target is right of its source."""
        return self.target.column > self.source.column

    @property
    def channel(self) -> int:
        """The channel along which it runs, by the row below it."""
        return self.target.row + self.rises

    @property
    def gutter(self) -> int:
        """The gutter that it goes down, by the column left of it."""
        if self.to_right:
            return self.source.column
        return self.source.column - 1


@dataclass(frozen=True, slots=True)
class Route:
    """Where a ribbon runs; the last point is the tip of its head."""

    points: tuple[Point, ...]
    to_right: bool
    rises: bool


@dataclass(frozen=True, slots=True)
class Lanes:
    """Which lane each ribbon has in its gutter and in its channel, at which port it leaves and enters."""

    gutters: tuple[int, ...]
    channels: tuple[int, ...]
    leaves: tuple[int, ...]
    enters: tuple[int, ...]
    heights: dict[object, int]
    """Lanes of a channel, by its row and whether its ribbons rise into the row above."""
    widths: dict[object, int]
    """Lanes of a gutter, by the column left of it."""

    def height_of(self, channel: int) -> float:
        """Pixels that a channel needs."""
        height = 0.0
        for rises in (False, True):
            if lanes := self.heights.get((channel, rises)):
                height += LABEL + LANE * lanes
        return height


def choose_lanes(ribbons: Sequence[Ribbon]) -> Lanes:
    """Lanes for all: two share one only where they do not meet, or are of one bundle, which is drawn as a tree."""
    gutters = _share_lanes(ribbons, lambda each: each.gutter, lambda each: sorted((each.source.row + 0.5, float(each.channel))))
    channels = _share_lanes(ribbons, lambda each: (each.channel, each.rises), _columns_along)
    leaves = _share_lanes(ribbons, lambda each: (each.source, each.to_right), lambda each: [0.0, 0.0])
    enters = _share_lanes(ribbons, lambda each: (each.target, each.to_right, each.rises), lambda each: [0.0, 0.0])
    heights: dict[object, int] = {}
    widths: dict[object, int] = {}
    for ribbon, channel, gutter in zip(ribbons, channels, gutters, strict=True):
        place = ribbon.channel, ribbon.rises
        heights[place] = max(heights.get(place, 0), channel + 1)
        widths[ribbon.gutter] = max(widths.get(ribbon.gutter, 0), gutter + 1)
    return Lanes(gutters, channels, leaves, enters, heights, widths)


def _columns_along(ribbon: Ribbon) -> list[float]:
    """What a ribbon takes of its channel: from its gutter to its target."""
    return sorted((ribbon.gutter + 0.5, ribbon.target.column + (-0.2 if ribbon.to_right else 0.2)))


def _share_lanes(
    ribbons: Sequence[Ribbon], place_of: Callable[[Ribbon], object], span_of: Callable[[Ribbon], list[float]]
) -> tuple[int, ...]:
    """The first free lane of its place for each, over the span that it takes there."""
    bundles = group_by(range(len(ribbons)), lambda at: (place_of(ribbons[at]), ribbons[at].bundle or at))
    taken: dict[object, list[tuple[int, float, float]]] = {}
    lanes = [0] * len(ribbons)
    for (place, _), members in bundles.items():
        ends = sorted(chain.from_iterable(span_of(ribbons[at]) for at in members))
        there = taken.setdefault(place, [])
        busy = set()
        for lane, first, last in there:
            if ends[0] <= last and first <= ends[-1]:
                busy.add(lane)
        lane = 0
        while lane in busy:
            lane += 1
        there.append((lane, ends[0], ends[-1]))
        for at in members:
            lanes[at] = lane
    return tuple(lanes)


@dataclass(frozen=True, slots=True)
class Page:
    """Where rows, channels and gutters lie, in pixels.

    Attributes:
        tops: of each row, and of the end.
        height: of a box.
        gutters: left and right edge of the gutter behind each column.
    """

    tops: tuple[float, ...]
    height: float
    gutters: tuple[Point, ...]


def route_ribbon(ribbon: Ribbon, at: int, lanes: Lanes, page: Page) -> Route:
    """The points of one ribbon, from the side of its source to the edge of its target."""
    source, target = ribbon.source, ribbon.target
    left, right = page.gutters[ribbon.gutter]
    step = min(LANE, (right - left - 10) / max(1, lanes.widths[ribbon.gutter]))
    turn_from = 6 + step * lanes.gutters[at]
    in_from = min(_FIRST_PORT, target.width * 0.25) + lanes.enters[at] * min(PORT, target.width * PORT_SHARE)
    in_from = min(in_from, target.width - 8)
    if ribbon.to_right:
        start, turn, port = source.x + source.width, left + turn_from, target.x + in_from
    else:
        start, turn, port = source.x, right - turn_from, target.x + target.width - in_from
    side = page.tops[source.row] + page.height / 2 + _spread(lanes.leaves[at], page.height)
    edge = page.tops[target.row]
    away = LABEL - 3 + LANE * lanes.channels[at]
    along = edge - away
    if ribbon.rises:
        edge += page.height
        along = edge + away
    return Route(((start, side), (turn, side), (turn, along), (port, along), (port, edge)), ribbon.to_right, ribbon.rises)


def _spread(port: int, height: float) -> float:
    """The first in the middle, others above and below it."""
    step = (port + 1) // 2 * (1 if port % 2 else -1)
    return max(-height / 2 + 4, min(height / 2 - 4, 7.0 * step))


def round_path(points: Sequence[Point]) -> str:
    """An SVG path through points, with round corners; straight lines are level or upright."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near = min(CORNER, _distance(before, corner) / 2, _distance(corner, after) / 2)
        start, end = _towards(corner, before, near), _towards(corner, after, near)
        parts.append(f"L{start[0]:.1f} {start[1]:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {end[0]:.1f} {end[1]:.1f}")
    return "".join([*parts, f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"])


def _distance(one: Point, other: Point) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _towards(start: Point, end: Point, far: float) -> Point:
    whole = _distance(start, end) or 1.0
    return start[0] + (end[0] - start[0]) * far / whole, start[1] + (end[1] - start[1]) * far / whole
