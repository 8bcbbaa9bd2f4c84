"""Marks that the pages of a plan are drawn with: the macros of `plan.html.j2`, places along one scale, rungs of a ladder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from devwidget.extras.plan.records.answers import Room
from devwidget.extras.plan.words.plan import fit_words
from devwidget.report.figures.frame import round_step
from devwidget.report.page.templates import draw_macro
from devwidget.report.style.safe_text import Markup, join_html
from devwidget.report.style.units import format_bytes


def draw(macro: str, /, *args: Any, **facts: Any) -> Markup:
    """Draw a macro of the pages of a plan."""
    return draw_macro("extras/plan/page/plan.html", macro, *args, **facts)


def draw_percent(share: float) -> str:
    """A share for CSS."""
    return f"{100 * share:.3f}%"


@dataclass(frozen=True, slots=True)
class Scale:
    """Bytes along the width of a track."""

    reach: float

    def at(self, size: float) -> str:
        """Where a size begins."""
        return f"left:{draw_percent(size / self.reach)}"

    def place(self, start: float, stop: float) -> str:
        """A stretch from one size to another."""
        return f"{self.at(start)};width:{draw_percent(max(stop - start, 0) / self.reach)}"

    def list_ticks(self, capacity: float) -> Iterator[tuple[float, str, str]]:
        """Round sizes, and the capacity."""
        for size in list_ticks(self.reach):
            if not size:
                yield 0, "0", "dw-first"
            elif abs(size - capacity) > 0.07 * self.reach:
                yield size, format_bytes(int(size)), ""
        yield capacity, format_bytes(int(capacity)), "dw-capacity"


def list_ticks(reach: float) -> Iterator[float]:
    """Round sizes up to one."""
    unit = 1.0
    while unit < 2.0**40 and reach >= 1024 * unit:
        unit *= 1024
    step = round_step(reach / unit / 4) * unit
    for at in range(int(reach / step) + 1):
        yield step * at


def scale_of(rooms: Iterable[Room]) -> Scale:
    """The scale on which the fullest has its place."""
    return Scale(1.02 * max([1.0, *(room.on_card / room.capacity for room in rooms)]))


def draw_rung(scale: Scale, room: Room, words: str, more: str = "", is_first: bool = False) -> Markup:
    """One line of a ladder: what was planned, what it takes of the capacity, and a remark."""
    left = room.capacity - room.on_card
    spare = format_bytes(abs(left))
    if left < 0:
        spare = f"−{spare}"
    return draw("rung", scale, room, fit_words(room.fit), words, format_bytes(room.on_card), spare, more, is_first)


def draw_ladder(first: str, wall: str, rungs: Iterable[Markup], scale: Scale, last: str = "") -> Markup:
    """Lines under one wall, at the capacity of each; `first` and `last` are headings."""
    return draw("ladder", first, wall, join_html(*rungs), scale, last)
