"""Marks that the pages of a plan are drawn with: glyphs, stretches along one scale, rungs of a ladder, tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.records.answers import Room
from devwidget.extras.plan.words.plan import fit_words
from devwidget.language.speaking import say
from devwidget.report.figures.frame import round_step
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import format_bytes

_SHAPES = {
    "error": "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 0 0 0-13z M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4",
    "warning": "M8 2.2l6.2 11.3H1.8z M8 6.4v3.4M8 11.4v.6",
    "tried": "M2.8 8.6l3.4 3.4l7-8",
}
"""The glyphs of `ui/static/edits.js`, for pages without script."""
GLYPHS: dict[Fit, str] = {"fits": "tried", "fits by less": "warning", "does not fit": "error"}


def draw_glyph(name: str, words: str = "") -> Markup:
    """A glyph; with words it says them to who cannot see it."""
    if words:
        spoken = {"role": "img", "aria-label": words}
    else:
        spoken = {"aria-hidden": "true"}
    look = {"viewBox": "0 0 16 16", "class_": f"dw-icon-{name} dw-glyph"}
    return html_element("svg", html_element("path", d=_SHAPES[name]), **look, **spoken)


def draw_prose(text: str) -> Markup:
    """A sentence whose names between backticks are code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return join_html(text)
    return join_html(*(html_element("code", part) if at % 2 else part for at, part in enumerate(parts)))


def draw_percent(share: float) -> str:
    """A share for CSS."""
    return f"{100 * share:.3f}%"


@dataclass(frozen=True, slots=True)
class Scale:
    """Bytes along the width of a track."""

    reach: float

    def draw_stretch(self, start: float, stop: float, look: str = "", hue: str = "", title: str = "") -> Markup:
        """A box from one size to another."""
        place = f"left:{draw_percent(start / self.reach)};width:{draw_percent(max(stop - start, 0) / self.reach)}"
        return html_element("i", class_=look, style=f"{place};background:{hue}" if hue else place, title=title)

    def draw_wall(self, at: float) -> Markup:
        """The end of the memory."""
        return html_element("i", class_="dw-wall", style=f"left:{draw_percent(at / self.reach)}")

    def draw_words(self, at: float, *words: str, before: bool = False) -> Markup:
        """Words that begin, or end, at a size."""
        if before:
            side = f"right:{draw_percent(1 - at / self.reach)}"
        else:
            side = f"left:{draw_percent(at / self.reach)}"
        return html_element("span", *words, style=side)

    def draw_ticks(self, capacity: float) -> Markup:
        """Round sizes, and the capacity."""
        ticks = (self._draw_tick(size) for size in list_ticks(self.reach) if abs(size - capacity) > 0.07 * self.reach)
        look = "dw-capacity dw-last" if capacity > 0.94 * self.reach else "dw-capacity"
        end = html_element(
            "span", format_bytes(int(capacity)), class_=look, style=f"left:{draw_percent(capacity / self.reach)}"
        )
        return html_element("div", *ticks, end, class_="dw-ticks")

    def _draw_tick(self, size: float) -> Markup:
        look = "" if size else "dw-first"
        if size > 0.94 * self.reach:
            look = "dw-last"
        words = format_bytes(int(size)) if size else "0"
        return html_element("span", words, class_=look, style=f"left:{draw_percent(size / self.reach)}")


def list_ticks(reach: float) -> Iterator[float]:
    """Round sizes up to one."""
    unit = next((unit for unit in (2.0**40, 2.0**30, 2.0**20, 2.0**10) if reach >= unit), 1.0)
    step = round_step(reach / unit / 4) * unit
    yield from (step * at for at in range(int(reach / step) + 1))


def draw_keys(keys: Iterable[tuple[str, str, str]]) -> Markup:
    """`(look, hue, name)` of what is drawn."""
    each = (
        html_element("span", html_element("i", class_=look, style=f"background:{hue}" if hue else ""), name)
        for look, hue, name in keys
    )
    return html_element("p", *each, class_="dw-keys")


def draw_table(rows: Sequence[Sequence[str]], right: Collection[int] = (), wide: int = -1) -> Markup:
    """A table with its heading; `wide` is the column that takes what is left."""
    drawn = [
        html_element("tr", *(_draw_cell("td" if at else "th", cell, place, right, wide) for place, cell in enumerate(row)))
        for at, row in enumerate(rows)
    ]
    table = html_element(
        "table", html_element("thead", drawn[0]), html_element("tbody", *drawn[1:]), class_="dw-table dw-plan-table"
    )
    return html_element("div", table, class_="dw-scroll-x", tabindex="0")


def _draw_cell(tag: str, cell: str, place: int, right: Collection[int], wide: int) -> Markup:
    return html_element(tag, cell, class_="dw-number" if place in right else "dw-wide" if place == wide else "")


def draw_ladder(first: str, wall: str, rungs: Iterable[Markup], scale: Scale, last: str = "") -> Markup:
    """Lines under one wall, at the capacity of each.

    Args:
        first: the heading of what was planned.
        wall: what the wall is.
        rungs: by `draw_rung`, on the same scale.
        scale: in shares of the capacity.
        last: the heading of what is said of each.
    """
    at = 1 / scale.reach
    end = html_element("span", wall, class_="dw-last" if at > 0.9 else "", style=f"left:{draw_percent(at)}")
    heads = first, say("on the card"), say("to spare"), last
    first_head, *rest = (html_element("span", head) for head in heads)
    track = html_element("span", end, class_="dw-track")
    head = html_element("div", html_element("span"), first_head, track, *rest, class_="dw-rung dw-rung-head")
    return html_element("div", head, *rungs, class_="dw-rungs")


def scale_of(rooms: Iterable[Room]) -> Scale:
    """The scale on which the fullest has its place."""
    return Scale(1.02 * max([1.0, *(room.on_card / room.capacity for room in rooms)]))


def draw_rung(scale: Scale, room: Room, words: str, more: str = "", is_first: bool = False) -> Markup:
    """One line of a ladder: what was planned, what it takes of the capacity, and what is said of it."""
    cells = format_bytes(room.on_card), _draw_spare(room), more
    what = draw_glyph(GLYPHS[room.fit], fit_words(room.fit)), html_element("span", words)
    track = html_element("span", *draw_track(scale, room), class_="dw-track")
    look = "dw-rung dw-rung-first" if is_first else "dw-rung"
    return html_element("div", *what, track, *(html_element("span", cell) for cell in cells), class_=look)


def draw_track(scale: Scale, room: Room) -> Iterator[Markup]:
    """What is taken of the capacity, and what of it is too much."""
    share = min(room.on_card / room.capacity, scale.reach)
    yield scale.draw_stretch(0, min(share, 1), "" if share <= 1 else "dw-hollow")
    if share > 1:
        yield scale.draw_stretch(1, share, "dw-too-much")
    yield scale.draw_wall(1)


def _draw_spare(room: Room) -> Markup:
    """What is left, or how much is too much."""
    left = room.capacity - room.on_card
    words = format_bytes(abs(left))
    return html_element("span", words if left >= 0 else f"−{words}", class_="" if left >= 0 else "dw-over")
