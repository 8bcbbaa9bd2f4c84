"""A model on its devices as one SVG: the page makes it live, a saved notebook shows it as it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from devwidget.language.speaking import said
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.report.figures.ribbons import Page, Point, Ribbon, RibbonBox, Route, choose_lanes, round_path, route_ribbon
from devwidget.report.figures.shapes import COLOURS, MONO, MONO_FONT, SANS, SANS_FONT, SMALL
from devwidget.report.page.templates import render
from devwidget.report.style.palette import CATEGORY_HUES, HOP_HUE, INK, SOFT_INK, WRONG, device_hue
from devwidget.report.style.safe_text import Markup, columns_of
from devwidget.report.style.units import format_bytes, some_bytes
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
    "copy": Message("copies; the thicker, the more bytes"),
    "gradient": Message("gradients, sent back"),
    "healed": Message("misplaced: moved by the trace so that the step could continue"),
    "stopped": Message("the step stopped here"),
}


Laid = dict[str, Any]
"""What `devices.svg.j2` draws of a thing, and where."""
Text = tuple[float, float, str, dict[str, str]]


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
    def hue(self) -> str:
        """Of a part of a wall."""
        return CATEGORY_HUES[self.part]

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
        order = sorted(range(len(self.routes)), key=lambda at: _order_of(self.picture.ways[at]))
        wide, tall = f"{self.width:.0f}", f"{self.tall:.0f}"
        most = f"max-width: {self.width * 1.12:.0f}px"
        style = f"color-scheme: light dark; width: 100%; {most}; height: auto; font-family: {SANS_FONT}"
        look = {
            "class": "dw-devices",
            "aria-label": picture_words(self.picture),
            "font-size": "12",
            "fill": INK,
            "role": "img",
            "style": style,
            "width": wide,
            "height": tall,
            "viewBox": f"0 0 {wide} {tall}",
        }
        return render(
            "devices.svg",
            drawing=self,
            look=look | dict(place),
            columns=[self._lay_column(at, column) for at, column in enumerate(self.picture.columns)],
            ways=[self._lay_way(at) for at in order],
            blocks=[self._lay_block(block, box) for block, box in zip(self.picture.blocks, self.boxes, strict=True)],
            labels=list(self._lay_labels(order)),
            lay_key=lambda entry, y: _lay_ribbon(((entry.x, y), (entry.x + 24, y)), None, entry.kind, 2.5),
            BOX=_BOX,
            WALL=_WALL,
            **COLOURS,
        )

    def _lay_column(self, at: int, column: DeviceColumn) -> Laid:
        left, wide, bottom = self.lefts[at], self.widths[at], self.height - 1
        x = left + (_WALL if column.device.is_accelerator else 0) + _pad(wide)
        room = wide - (x - left)
        words = (form for form in taken_words(column, self.picture.blocks) if columns_of(form) * SMALL <= room - 3)
        letters = max(1, int((wide - _WALL - 8) / SMALL))
        return {
            "device": str(column.device),
            "title": column_title(column, self.picture.blocks),
            "left": left,
            "wide": wide,
            "bottom": bottom,
            "x": x,
            "hue": device_hue(column.device),
            "is_round": column.device.is_accelerator,
            "taken": next(words, ""),
            "refused": column.refused,
            "is_idle": column.is_idle,
            "idle_lines": [cut_line(line, letters) for line in idle_words()],
            "middle": left + _WALL + (wide - _WALL) / 2,
            **_lay_device(column.device, room),
            **self._lay_wall(column, bottom),
        }

    def _lay_wall(self, column: DeviceColumn, bottom: float) -> Laid:
        """The left wall is the memory of a device, filled from below; all walls have one scale."""
        if not _has_wall(column):
            return {"wall": 0.0}
        whole = (bottom - 1) * column.capacity / max(each.capacity for each in self.picture.columns)
        parts, y = [], bottom
        for part, size in column.parts:
            tall = max(1.0 if size else 0.0, whole * size / column.capacity)
            y = max(y - tall, 1.0)
            words = f"{part_name(part)}: {format_bytes(size)}, {size / column.capacity:.0%}"
            parts.append((y, tall, CATEGORY_HUES[part], words))
        return {"wall": whole, "parts": parts}

    def _lay_block(self, block: Block, box: RibbonBox) -> Laid:
        hue, is_tensor = device_hue(block.device), block.what == "tensor"
        is_round = block.what in ("tensor", "batch", "outputs")
        right = box.x + box.width - (3 if box.width < 60 else 7)
        has_cross = block.wrong and not is_tensor
        return {
            "title": block_title(block),
            "box": box,
            "y": self.page.tops[box.row],
            "hue": hue,
            "edge": WRONG if block.wrong and is_tensor else hue,
            "radius": 13 if is_round else 3,
            "is_module": block.what == "module",
            "is_dashed": block.what != "module" and not block.wrong,
            "is_run": bool(block.unfolds) and len(block.paths) > 1,
            "cross": right - 5 if has_cross else None,
            "texts": list(_lay_names(block, box, right - 16 if has_cross else right, is_round=is_round)),
            "data": _data(module=block.path, unfolds=block.unfolds, what=block.what),
        }

    def _lay_way(self, at: int) -> Laid:
        way, route = self.picture.ways[at], self.routes[at]
        blocks = self.picture.blocks
        return {
            "title": way_title(way, self.picture),
            "line": _lay_ribbon(route.points, route.rises, way.kind, self._thickness(way)),
            "reach": round_path(route.points),
            "data": _data(
                kind=way.kind,
                number=str(way.moves[0].number) if way.moves else "",
                way=str(at),
                step=way.step,
                source=str(blocks[way.source].device),
                target=str(blocks[way.target].device),
                module=way.call.wrapper if way.call is not None else "",
            ),
        }

    def _thickness(self, way: Way) -> float:
        most = max((each.bytes for each in self.picture.ways), default=0) or 1
        return _THIN + (_THICK if len(self.picture.columns) < 5 else 3.0) * math.sqrt(way.bytes / most)

    def _lay_labels(self, order: list[int]) -> Iterator[Text]:
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
                look = {"fill": SOFT_INK}
                if way.kind in ("healed", "stopped"):
                    look = {"fill": WRONG, "font-weight": "600"}
                yield start, level, words, {"font-size": "11", **look}


def _lay_device(device: DeviceId, room: float) -> Laid:
    """The name beside its dot: smaller where there is little room, and its number alone where there is less."""
    name, wide = str(device), columns_of(str(device))
    if wide * 8.2 <= room - 14:
        return {"name": name, "name_at": 13, "name_size": "13"}
    if wide * 7.5 > room - 14 and device.index is not None:
        name = f":{device.index}"
    return {"name": name, "name_at": 11, "name_size": "12"}


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


def _lay_names(block: Block, box: RibbonBox, right: float, *, is_round: bool) -> Iterator[tuple[float, str, dict[str, str]]]:
    """Name, kind and bytes, as far as there is room: the name before all others, and of it its end."""
    x = box.x + (12 if is_round else 9) - (3 if box.width < 60 else 0)
    size, kind, room = some_bytes(block.bytes), block_kind(block), right - x
    size_wide = columns_of(size) * SMALL + 8 if size else 0.0
    name = _shorten(block_name(block), int((room - (size_wide if box.width > 150 else 0)) / MONO))
    yield x, name, {"font-family": MONO_FONT}
    name_wide = columns_of(name) * MONO
    left = room - name_wide
    if size and left >= size_wide:
        left -= size_wide
        yield right, size, {"fill": SOFT_INK, "font-size": "11", "text-anchor": "end"}
    if kind and left >= columns_of(kind) * SANS + 6:
        yield x + name_wide + 6, kind, {"fill": SOFT_INK}


def _shorten(path: str, letters: int) -> str:
    """As much of the end of a path as has room; of a tensor's type the beginning."""
    if columns_of(path) <= letters:
        return path
    if "[" in path:
        return cut_line(path, max(1, letters))
    starts = [at + 1 for at, letter in enumerate(path) if letter in ". " and path[at - 1 : at] != ","]
    ends = [path[at:] for at in starts]
    return next((end for end in ends if columns_of(end) <= letters), cut_line(ends[-1] if ends else path, max(1, letters)))


def _lay_ribbon(points: Sequence[Point], rises: bool | None, kind: Kind, thick: float) -> Laid:
    """A line with its head; without `rises` it lies level."""
    (x, tip), size = points[-1], 5 + thick
    far, half = size * 0.9, size * 0.62
    if rises is None:
        base = x - far, tip
        head, cross = f"M{base[0]:.1f} {tip - half:.1f}V{tip + half:.1f}L{x:.1f} {tip:.1f}Z", (x - 5, tip)
    else:
        sign = 1 if rises else -1
        base = x, tip + sign * far
        head, cross = f"M{x - half:.1f} {base[1]:.1f}H{x + half:.1f}L{x:.1f} {tip:.1f}Z", (x, tip + sign * 5)
    is_wrong, is_hollow = kind in ("healed", "stopped"), kind == "gradient"
    return {
        "path": round_path([*points[:-1], base]),
        "thick": max(thick, 3.2) if is_hollow else thick,
        "hue": WRONG if is_wrong else HOP_HUE,
        "is_wrong": is_wrong,
        "is_hollow": is_hollow,
        "head": head,
        "cross": cross if kind == "stopped" else None,
    }


def _data(**facts: str) -> dict[str, str]:
    """Attributes by which a page finds what can be pointed at."""
    return {f"data-{name}": text for name, text in facts.items() if text}
