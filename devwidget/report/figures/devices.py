"""A model on its devices as one SVG: the page makes it live, a saved notebook shows it as it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from devwidget.language.speaking import said
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.report.figures.ribbons import Page, Point, Ribbon, RibbonBox, Route, choose_lanes, round_path, route_ribbon
from devwidget.report.figures.shapes import (
    MONO,
    MONO_FONT,
    SANS,
    SANS_FONT,
    SMALL,
    draw_cross,
    draw_dot,
    draw_rectangle,
    draw_text,
)
from devwidget.report.style.palette import CATEGORY_HUES, HOP_HUE, INK, PAPER, SOFT_INK, WRONG, device_hue
from devwidget.report.style.safe_text import Markup, columns_of, html_element
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import cut_line, part_name, row_words
from devwidget.report.text.device_words import (
    block_kind,
    block_name,
    block_title,
    column_title,
    idle_words,
    taken_words,
    way_title,
)
from devwidget.views.blocks import Block
from devwidget.views.devices import DeviceColumn, Kind, Picture, Way

WIDTHS = (640, 820, 1120)
"""Pixels for which a picture is drawn: a page shows the widest one that it has room for."""
_HEAD, _BOX, _GAP, _FOOT = 54.0, 26.0, 5.0, 12.0
_WALL = 8.0
_GUTTERS = 20.0, 54.0
_WIDEST = 400.0
_THIN, _THICK = 1.5, 4.5
_SEEN = 0.005
"""Share of a wall below which nobody sees a part of it."""
_KEY: dict[Kind, Message] = {
    "copy": Message("copied, as thick as its bytes"),
    "gradient": Message("gradients on their way back"),
    "healed": Message("wrong: moved by the trace, so that the step could go on"),
    "stopped": Message("here the step stopped"),
}


def draw_devices(picture: Picture, width: int = WIDTHS[1], /, **place: str) -> Markup:
    """An `<svg>` element of a width in pixels and of whatever height its rows need; all its words are text in it.

    It needs no style sheet and no script: colours are `light-dark()` pairs, titles are tooltips, and a page scales it by its
    view box. What can be pointed at is a `<g>` with `data-mark`: `block` (with `data-module`, and `data-unfolds` where it has
    parts to show), `way` or `column`.

    Args:
        picture: what is drawn.
        width: pixels.
        place: attributes of the element that are others where it is a part of another drawing, such as its size there.
    """
    return _Drawing.plan(picture, width).draw(place)


def picture_words(picture: Picture) -> str:
    """What a reader is told who does not see it."""
    return row_words((column_title(column, picture.blocks) for column in picture.columns), "; ")


@dataclass(frozen=True, slots=True)
class _KeyEntry:
    """What a kind of ribbon means, or a part of a wall; pixels from the left, and which line."""

    words: str
    kind: Kind | None = None
    part: str = ""
    x: float = 0.0
    line: int = 0

    @property
    def start(self) -> float:
        """Pixels up to the words."""
        if self.kind is not None:
            return 30.0
        return _WALL + 5

    @property
    def wide(self) -> float:
        """Pixels up to the next one."""
        return self.start + 16 + columns_of(self.words) * SMALL


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A picture with a place for everything."""

    picture: Picture
    lefts: tuple[float, ...]
    widths: tuple[float, ...]
    boxes: tuple[RibbonBox, ...]
    routes: tuple[Route, ...]
    page: Page

    @classmethod
    def plan(cls, picture: Picture, width: int) -> _Drawing:
        """Columns share the width; rows are as far apart as their ribbons need."""
        lefts, widths, gutter = _place_columns(picture, width)
        columns = {column.device: at for at, column in enumerate(picture.columns)}
        boxes = tuple(_place_box(block, columns[block.device], lefts, widths) for block in picture.blocks)
        ribbons = [Ribbon(boxes[way.source], boxes[way.target], way.kind == "gradient", way.step) for way in picture.ways]
        lanes = choose_lanes(ribbons)
        tops, y = [], _HEAD
        for row in range(max((block.row for block in picture.blocks), default=-1) + 2):
            y += lanes.height_of(row) or _GAP
            tops.append(y)
            y += _BOX
        edges = tuple((left + wide, left + wide + gutter) for left, wide in zip(lefts, widths, strict=True))
        page = Page(tuple(tops), _BOX, edges)
        routes = tuple(route_ribbon(ribbon, at, lanes, page) for at, ribbon in enumerate(ribbons))
        return cls(picture, lefts, widths, boxes, routes, page)

    @property
    def width(self) -> float:
        """Right edge of the last column."""
        return self.lefts[-1] + self.widths[-1] + 1

    @property
    def height(self) -> float:
        """Below the last row."""
        return max(self.page.tops[-1] + _FOOT, 150.0)

    @property
    def key(self) -> list[_KeyEntry]:
        """What the ribbons and the walls that are drawn mean, those of walls on lines of their own."""
        kinds = {way.kind for way in self.picture.ways}
        ribbons = [_KeyEntry(said(words), kind=kind) for kind, words in _KEY.items() if kind in kinds]
        walled = [column for column in self.picture.columns if _has_wall(column)]
        parts = {part for column in walled for part, size in column.parts if size >= _SEEN * column.capacity}
        walls = [_KeyEntry(part_name(part), part=part) for part in CATEGORY_HUES if part in parts]
        placed: list[_KeyEntry] = []
        for entries in (ribbons, walls):
            x, line = 1.0, placed[-1].line + 1 if placed else 0
            for entry in entries:
                if x > 1 and x + entry.wide > self.width:
                    x, line = 1.0, line + 1
                placed.append(replace(entry, x=x, line=line))
                x += entry.wide
        return placed

    @property
    def tall(self) -> float:
        """Below what says what is what."""
        return self.height + (22 + 17 * self.key[-1].line if self.key else 0)

    def draw(self, place: Mapping[str, str]) -> Markup:
        """Columns below ribbons below blocks."""
        parts = [self._draw_column(at, column) for at, column in enumerate(self.picture.columns)]
        order = sorted(range(len(self.routes)), key=lambda at: _order_of(self.picture.ways[at]))
        ribbons = [self._draw_way(self.picture.ways[at], self.routes[at], at) for at in order]
        blocks = [self._draw_block(block, box) for block, box in zip(self.picture.blocks, self.boxes, strict=True)]
        labels = list(self._draw_labels(order))
        size = {"width": f"{self.width:.0f}", "height": f"{self.tall:.0f}", "viewBox": f"0 0 {self.width:.0f} {self.tall:.0f}"}
        words = picture_words(self.picture)
        wide = f"color-scheme: light dark; width: 100%; max-width: {self.width * 1.12:.0f}px; height: auto"
        style = f"{wide}; font-family: {SANS_FONT}"
        look = {"class": "dw-devices", "aria-label": words, "font-size": "12", "fill": INK, "role": "img", "style": style}
        ground = draw_rectangle(0, 0, self.width, self.tall, 0, fill=PAPER)  # a page that shows it as an image may be dark
        inside = (ground, *parts, *ribbons, *blocks, *labels, *self._draw_key())
        return html_element("svg", *inside, xmlns="http://www.w3.org/2000/svg", **(look | size | dict(place)))

    def _draw_column(self, at: int, column: DeviceColumn) -> Markup:
        left, wide, bottom = self.lefts[at], self.widths[at], self.height - 1
        if column.is_idle:
            dashed = {"stroke-dasharray": "4 3", "fill": "none"}
        else:
            dashed = {"fill": "rgba(128,128,128,0.09)"}
        frame = draw_rectangle(left + 0.5, 0.5, wide - 1, bottom - 0.5, 4, stroke="rgba(128,128,128,0.45)", **dashed)
        x, hue = left + (_WALL if column.device.is_accelerator else 0) + _pad(wide), device_hue(column.device)
        dot = draw_dot(x + 4, 15, hue, is_round=column.device.is_accelerator)
        room = wide - (x - left)
        name = _draw_device(column.device, x, room)
        words = next((form for form in taken_words(column, self.picture.blocks) if columns_of(form) * SMALL <= room - 3), "")
        taken = draw_text(x, 36, words, fill=SOFT_INK, **{"font-size": "11"})
        parts = [frame, *self._draw_wall(column, left, bottom), dot, name, taken]
        parts += self._draw_idle(left, wide) if column.is_idle else []
        return _mark("column", column_title(column, self.picture.blocks), *parts, **{"data-device": str(column.device)})

    def _draw_wall(self, column: DeviceColumn, left: float, bottom: float) -> Iterator[Markup]:
        """The left wall is the memory of a device, filled from below; all walls have one scale."""
        most = max(each.capacity for each in self.picture.columns)
        if not _has_wall(column):
            return
        whole = (bottom - 1) * column.capacity / most
        yield draw_rectangle(left + 0.5, bottom - whole, _WALL, whole, 0, fill=PAPER, stroke="rgba(128,128,128,0.7)")
        y = bottom
        for part, size in column.parts:
            tall = max(1.0 if size else 0.0, whole * size / column.capacity)
            y = max(y - tall, 1.0)
            words = f"{part_name(part)}: {format_bytes(size)}, {size / column.capacity:.0%}"
            yield html_element(
                "rect",
                html_element("title", words),
                x=f"{left + 1:.1f}",
                y=f"{y:.1f}",
                width=f"{_WALL - 1:.1f}",
                height=f"{tall:.1f}",
                fill=CATEGORY_HUES[part],
            )
        if column.refused:
            yield draw_rectangle(left - 1, max(bottom - whole - 6, 0.5), _WALL + 3, 6, 0, fill=WRONG)

    def _draw_idle(self, left: float, wide: float) -> list[Markup]:
        letters = int((wide - _WALL - 8) / SMALL)
        lines = [cut_line(line, max(1, letters)) for line in idle_words()]
        middle, y = left + _WALL + (wide - _WALL) / 2, self.height / 2
        style = {"text-anchor": "middle", "font-size": "11", "fill": SOFT_INK}
        return [draw_text(middle, y + 15 * at, line, **style) for at, line in enumerate(lines)]

    def _draw_block(self, block: Block, box: RibbonBox) -> Markup:
        y, hue, visits = self.page.tops[box.row], device_hue(block.device), block.what not in ("module",)
        edge = WRONG if block.wrong and block.what == "tensor" else hue
        radius = 13 if block.what in ("tensor", "batch", "outputs") else 3
        if visits and not block.wrong:
            dash = {"stroke-dasharray": "3 2"}
        else:
            dash = {}
        if block.unfolds and len(block.paths) > 1:
            behind = [
                draw_rectangle(box.x + 3, y + 3, box.width, _BOX, radius, fill=PAPER, stroke=hue, **{"stroke-opacity": "0.5"})
            ]
        else:
            behind = []
        base = draw_rectangle(box.x, y, box.width, _BOX, radius, fill=PAPER)
        frame = draw_rectangle(
            box.x + 0.5,
            y + 0.5,
            box.width - 1,
            _BOX - 1,
            radius,
            fill=hue if not visits else "none",
            stroke=edge,
            **{"fill-opacity": "0.1", "stroke-opacity": "0.6"},
            **dash,
        )
        if radius == 3:
            bar = [draw_rectangle(box.x, y, 3, _BOX, 0, fill=hue)]
        else:
            bar = []
        more = {"data-module": block.path, "data-unfolds": block.unfolds, "data-what": block.what}
        return _mark("block", block_title(block), *behind, base, frame, *bar, *_draw_names(block, box, y), **more)

    def _draw_way(self, way: Way, route: Route, at: int) -> Markup:
        strokes = _draw_ribbon(route.points, route.rises, way.kind, self._thickness(way))
        reach = html_element("path", d=round_path(route.points), fill="none", stroke="transparent", **{"stroke-width": "14"})
        first = str(way.moves[0].number) if way.moves else ""
        more = {"data-kind": way.kind, "data-number": first, "data-way": str(at), "data-step": way.step}
        more |= {
            f"data-{end}": str(self.picture.blocks[at].device) for end, at in (("source", way.source), ("target", way.target))
        }
        more |= {"data-module": way.call.wrapper} if way.call is not None else {}
        return _mark("way", way_title(way, self.picture), *strokes, reach, **more)

    def _draw_key(self) -> Iterator[Markup]:
        for entry in self.key:
            x, y = entry.x, self.height + 12 + 17 * entry.line
            if entry.kind is not None:
                yield from _draw_ribbon(((x, y), (x + 24, y)), None, entry.kind, 2.5)
            else:
                yield draw_rectangle(x, y - 4, _WALL, 8, 0, fill=CATEGORY_HUES[entry.part])
            yield draw_text(x + entry.start, y + 4, entry.words, fill=SOFT_INK, **{"font-size": "11"})

    def _thickness(self, way: Way) -> float:
        most = max((each.bytes for each in self.picture.ways), default=0) or 1
        return _THIN + (_THICK if len(self.picture.columns) < 5 else 3.0) * math.sqrt(way.bytes / most)

    def _draw_labels(self, order: list[int]) -> Iterator[Markup]:
        """The bytes beside each head, but for those that would leave their column or cover another."""
        heads: dict[Point, list[int]] = {}
        for at in reversed(order):
            heads.setdefault(self.routes[at].points[-1], []).append(at)
        taken = [(x - 7, x + 7, _level(self.routes[members[0]])) for (x, _), members in heads.items()]
        for (x, _), members in heads.items():
            way, route = self.picture.ways[members[0]], self.routes[members[0]]
            words, level = format_bytes(sum(self.picture.ways[at].bytes for at in members)), _level(route)
            wide, box = columns_of(words) * SMALL, self.boxes[way.target]
            start = x + 9 if route.to_right else x - 9 - wide
            fits = box.x - 2 <= start and start + wide <= box.x + box.width + 2
            if fits and not any(level == other and start < last and first < start + wide for first, last, other in taken):
                taken.append((start, start + wide, level))
                if way.kind in ("healed", "stopped"):
                    look = {"fill": WRONG, "font-weight": "600"}
                else:
                    look = {"fill": SOFT_INK}
                yield draw_text(start, level, words, **{"font-size": "11"}, **look)


def _draw_device(device: DeviceId, x: float, room: float) -> Markup:
    """The name beside its dot: smaller where there is little room, and its number alone where there is less."""
    name, wide = str(device), columns_of(str(device))
    if wide * 8.2 <= room - 14:
        return draw_text(x + 13, 19, name, **{"font-size": "13", "font-weight": "600"})
    shown = name if wide * 7.5 <= room - 14 or device.index is None else f":{device.index}"
    return draw_text(x + 11, 19, shown, **{"font-size": "12", "font-weight": "600"})


def _has_wall(column: DeviceColumn) -> bool:
    return bool(column.capacity) and column.device.is_accelerator


def _level(route: Route) -> float:
    tip = route.points[-1][1]
    return round(tip + 13 if route.rises else tip - 4, 1)


def _order_of(way: Way) -> tuple[int, int]:
    """Gradients, copies by their bytes, what is wrong last and above all."""
    return ("gradient", "copy", "healed", "stopped").index(way.kind), way.bytes


def _place_columns(picture: Picture, width: int) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Left edge and width of each column, and the gutter between them."""
    shares = [
        0.5 if column.is_idle else 0.75 if _holds_tensors_only(column.device, picture.blocks) else 1.0
        for column in picture.columns
    ]
    low, high = _GUTTERS
    gutter = max(low, min(high, width * 0.2 / max(1, len(shares) - 1)))
    room = (width - 2 - gutter * (len(shares) - 1)) / sum(shares)
    widths = tuple(min(room, _WIDEST) * share for share in shares)
    lefts = tuple(sum(widths[:at]) + gutter * at for at in range(len(widths)))
    return lefts, widths, gutter


def _holds_tensors_only(device: DeviceId, blocks: tuple[Block, ...]) -> bool:
    return all(block.what in ("tensor", "batch") for block in blocks if block.device == device)


def _place_box(block: Block, column: int, lefts: tuple[float, ...], widths: tuple[float, ...]) -> RibbonBox:
    pad = _pad(widths[column])
    wall = (_WALL if block.device.is_accelerator else 0) + pad
    return RibbonBox(block.row, column, lefts[column] + wall, widths[column] - wall - pad)


def _pad(column: float) -> float:
    """Pixels beside the boxes of a column."""
    if column > 100:
        return 9.0
    return 5.0


def _draw_names(block: Block, box: RibbonBox, y: float) -> Iterator[Markup]:
    """Name, kind and bytes, as far as there is room: the name before all others, and of it its end."""
    is_round, is_narrow = block.what in ("tensor", "batch", "outputs"), box.width < 60
    x = box.x + (12 if is_round else 9) - (3 if is_narrow else 0)
    right = box.x + box.width - (3 if is_narrow else 7)
    if block.wrong and block.what != "tensor":
        yield draw_cross(right - 5, y + _BOX / 2, WRONG)
        right -= 16
    if block.bytes:
        size = format_bytes(block.bytes)
    else:
        size = ""
    name, kind, room = block_name(block), block_kind(block), right - x
    shown = _shorten(name, int((room - (columns_of(size) * SMALL + 8 if box.width > 150 and size else 0)) / MONO))
    yield draw_text(x, y + 17, shown, **{"font-family": MONO_FONT})
    left = room - columns_of(shown) * MONO
    if size and left >= columns_of(size) * SMALL + 8:
        left -= columns_of(size) * SMALL + 8
        yield draw_text(right, y + 17, size, fill=SOFT_INK, **{"font-size": "11", "text-anchor": "end"})
    if kind and left >= columns_of(kind) * SANS + 6:
        yield draw_text(x + columns_of(shown) * MONO + 6, y + 17, kind, fill=SOFT_INK)


def _shorten(path: str, letters: int) -> str:
    """As much of the end of a path as has room; of a tensor's type the beginning."""
    if columns_of(path) <= letters:
        return path
    if "[" in path:
        return cut_line(path, max(1, letters))
    starts = [at + 1 for at, letter in enumerate(path) if letter in ". " and path[at - 1 : at] != ","]
    ends = [path[at:] for at in starts]
    return next((end for end in ends if columns_of(end) <= letters), cut_line(ends[-1] if ends else path, max(1, letters)))


def _draw_ribbon(points: Sequence[Point], rises: bool | None, kind: Kind, thick: float) -> Iterator[Markup]:
    """A line with its head; what is wrong is dotted, a gradient hollow; without `rises` it lies level."""
    (x, tip), size = points[-1], 5 + thick
    far, half, wrong = size * 0.9, size * 0.62, kind in ("healed", "stopped")
    sign, hue, hollow = 1 if rises else -1, WRONG if wrong else HOP_HUE, kind == "gradient"
    base = (x - far, tip) if rises is None else (x, tip + sign * far)
    thick = max(thick, 3.2) if hollow else thick
    line = {"d": round_path([*points[:-1], base]), "fill": "none"}
    if wrong:
        dotted = {"stroke-dasharray": f"{max(1.5, thick * 0.6):.1f} 3"}
    else:
        dotted = {}
    yield html_element("path", stroke=PAPER, **line, **{"stroke-width": f"{thick + 3:.1f}"})
    yield html_element("path", stroke=hue, **line, **{"stroke-width": f"{thick:.1f}"}, **dotted)
    if hollow:
        yield html_element("path", stroke=PAPER, **line, **{"stroke-width": f"{thick - 2:.1f}"})
    if kind == "stopped":
        yield draw_cross(*((x - 5, tip) if rises is None else (x, tip + sign * 5)), hue)
    else:
        level = f"M{base[0]:.1f} {tip - half:.1f}V{tip + half:.1f}L{x:.1f} {tip:.1f}Z"
        upright = f"M{x - half:.1f} {base[1]:.1f}H{x + half:.1f}L{x:.1f} {tip:.1f}Z"
        yield html_element("path", d=level if rises is None else upright, fill=PAPER if hollow else hue, stroke=hue)


def _mark(what: str, title: str, *parts: Markup, **more: str) -> Markup:
    return html_element("g", html_element("title", title), *parts, **{"data-mark": what}, **more)
