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
    spoken = {"role": "img", "aria-label": words} if words else {"aria-hidden": "true"}
    look = {"viewBox": "0 0 16 16", "class_": f"dw-icon-{name} dw-glyph"}
    return html_element("svg", html_element("path", d=_SHAPES[name]), **look, **spoken)


def draw_prose(text: str) -> Markup:
    """A sentence whose names between backticks are code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return join_html(text)
    for at in range(1, len(parts), 2):
        parts[at] = html_element("code", parts[at])
    return join_html(*parts)


def draw_percent(share: float) -> str:
    """A share for CSS."""
    return f"{100 * share:.3f}%"


def at_left(share: float) -> str:
    """The place of what begins at a share of the width."""
    return f"left:{draw_percent(share)}"


@dataclass(frozen=True, slots=True)
class Scale:
    """Bytes along the width of a track."""

    reach: float

    def draw_stretch(self, start: float, stop: float, look: str = "", hue: str = "", title: str = "") -> Markup:
        """A box from one size to another."""
        place = f"{at_left(start / self.reach)};width:{draw_percent(max(stop - start, 0) / self.reach)}"
        if hue:
            place += f";background:{hue}"
        return html_element("i", class_=look, style=place, title=title)

    def draw_wall(self, at: float) -> Markup:
        """The end of the memory."""
        return html_element("i", class_="dw-wall", style=at_left(at / self.reach))

    def draw_words(self, at: float, *words: str, before: bool = False) -> Markup:
        """Words that begin, or end, at a size."""
        side = at_left(at / self.reach)
        if before:
            side = f"right:{draw_percent(1 - at / self.reach)}"
        return html_element("span", *words, style=side)

    def draw_ticks(self, capacity: float) -> Markup:
        """Round sizes, and the capacity."""
        ticks = []
        for size in list_ticks(self.reach):
            if not size:
                ticks.append(self._draw_tick(0, "0", "dw-first"))
            elif abs(size - capacity) > 0.07 * self.reach:
                ticks.append(self._draw_tick(size, format_bytes(int(size))))
        ticks.append(self._draw_tick(capacity, format_bytes(int(capacity)), "dw-capacity"))
        return html_element("div", *ticks, class_="dw-ticks")

    def _draw_tick(self, size: float, words: str, look: str = "") -> Markup:
        if size > 0.94 * self.reach:
            look = f"{look} dw-last".strip()
        return html_element("span", words, class_=look, style=at_left(size / self.reach))


def list_ticks(reach: float) -> Iterator[float]:
    """Round sizes up to one."""
    unit = 1.0
    while unit < 2.0**40 and reach >= 1024 * unit:
        unit *= 1024
    step = round_step(reach / unit / 4) * unit
    for at in range(int(reach / step) + 1):
        yield step * at


def draw_keys(keys: Iterable[tuple[str, str, str]]) -> Markup:
    """`(look, hue, name)` of what is drawn."""
    drawn = []
    for look, hue, name in keys:
        mark = html_element("i", class_=look, style=f"background:{hue}" if hue else "")
        drawn.append(html_element("span", mark, name))
    return html_element("p", *drawn, class_="dw-keys")


def draw_table(rows: Sequence[Sequence[str]], right: Collection[int] = (), wide: int = -1) -> Markup:
    """A table with its heading; `wide` is the column that takes what is left."""
    looks = dict.fromkeys(right, "dw-number") | {wide: "dw-wide"}

    def draw_row(row: Sequence[str], tag: str = "td") -> Markup:
        return html_element("tr", *(html_element(tag, cell, class_=looks.get(at, "")) for at, cell in enumerate(row)))

    head, body = html_element("thead", draw_row(rows[0], "th")), html_element("tbody", *map(draw_row, rows[1:]))
    table = html_element("table", head, body, class_="dw-table dw-plan-table")
    return html_element("div", table, class_="dw-scroll-x", tabindex="0")


def draw_ladder(first: str, wall: str, rungs: Iterable[Markup], scale: Scale, last: str = "") -> Markup:
    """Lines under one wall, at the capacity of each.

    Args:
        first: the heading of what was planned.
        wall: what the wall is.
        rungs: by `draw_rung`, on the same scale.
        scale: in shares of the capacity.
        last: the heading of the last column.
    """
    at = 1 / scale.reach
    end = html_element("span", wall, class_="dw-last" if at > 0.9 else "", style=at_left(at))
    first_head, *rest = map(_draw_span, (first, say("on the card"), say("to spare"), last))
    track = html_element("span", end, class_="dw-track")
    head = html_element("div", html_element("span"), first_head, track, *rest, class_="dw-rung dw-rung-head")
    return html_element("div", head, *rungs, class_="dw-rungs")


def _draw_span(words: str) -> Markup:
    return html_element("span", words)


def scale_of(rooms: Iterable[Room]) -> Scale:
    """The scale on which the fullest has its place."""
    return Scale(1.02 * max([1.0, *(room.on_card / room.capacity for room in rooms)]))


def draw_rung(scale: Scale, room: Room, words: str, more: str = "", is_first: bool = False) -> Markup:
    """One line of a ladder: what was planned, what it takes of the capacity, and a remark."""
    cells = format_bytes(room.on_card), _draw_spare(room), more
    what = draw_glyph(GLYPHS[room.fit], fit_words(room.fit)), _draw_span(words)
    track = html_element("span", *draw_track(scale, room), class_="dw-track")
    look = "dw-rung dw-rung-first" if is_first else "dw-rung"
    return html_element("div", *what, track, *map(_draw_span, cells), class_=look)


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
    if left < 0:
        return html_element("span", f"−{format_bytes(-left)}", class_="dw-over")
    return html_element("span", format_bytes(left), class_="")
