"""Draw a model on its devices as one SVG. The page makes it interactive; a saved notebook shows it unchanged."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from devwidget.language.speaking import said
from devwidget.records.device import DeviceId
from devwidget.report.figures.ribbons import (
    PORT,
    PORT_SHARE,
    Page,
    Point,
    Ribbon,
    RibbonBox,
    Route,
    choose_lanes,
    round_path,
    route_ribbon,
)
from devwidget.report.page.templates import render
from devwidget.report.style.palette import CATEGORY_HUES, HOP_HUE, INK, PAPER, SOFT_INK, WRONG, device_hue
from devwidget.report.style.safe_text import Markup, columns_of
from devwidget.report.style.units import format_bytes, some_bytes
from devwidget.report.style.words import code_word, cut_line, part_name, row_words
from devwidget.report.text.device_words import (
    KINDS,
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
from devwidget.views.sums import group_by, total, values_once

WIDTHS = (640, 820, 1120)
"""Pixels for which a picture is drawn: a page shows the widest one that it has room for."""
_HEAD, _BOX, _GAP, _FOOT = 54.0, 26.0, 5.0, 12.0
_WALL = 8.0
_GUTTERS = 20.0, 54.0
_WIDEST = 400.0
_THIN, _THICK = 1.5, 4.5
_SEEN = 0.005
"""Share of a wall below which a part of it is invisible."""


SANS_FONT = "var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif)"
MONO_FONT = "var(--dw-mono, ui-monospace, SFMono-Regular, Menlo, Consolas, monospace)"
MONO, SANS, SMALL = 7.3, 6.6, 6.1
"""Pixels of a letter: of 12 pixels in both fonts, and of 11."""
_BOLD = 7.9
"""Pixels of a bold letter of 13 pixels."""
_HALF = 0.62
"""Half the width of an arrowhead, as a share of its size."""
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
    """Text for a screen reader."""
    return row_words((column_title(column, picture.blocks) for column in picture.columns), "; ")


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
        for row in range(max(map(attrgetter("row"), picture.blocks), default=-1) + 2):
            y += lanes.height_of(row) or _GAP
            tops.append(y)
            y += _BOX
        rights = tuple(map(operator.add, lefts, widths))
        edges = tuple((right, right + gutter) for right in rights)
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
    def legend(self) -> list[list[Laid]]:
        """The legend of the ribbons, and below it that of the walls: lines of as many entries as there is room for."""
        kinds = values_once(self.picture.ways, "kind")
        parts = set[str]()
        for column in filter(_has_wall, self.picture.columns):
            parts.update(part for part, size in column.parts if size >= _SEEN * column.capacity)
        ribbons: list[Laid] = []
        walls: list[Laid] = []
        for kind, message in KINDS.items():
            if kind in kinds:
                ribbons.append({"words": said(message), "kind": kind, "start": 30.0})
        for part, hue in CATEGORY_HUES.items():
            if part in parts:
                walls.append({"words": part_name(part), "kind": None, "hue": hue, "start": 13.0})
        lines: list[list[Laid]] = []
        for entries in filter(None, (ribbons, walls)):
            x = self.width
            for entry in entries:
                wide = entry["start"] + 16 + columns_of(entry["words"]) * SMALL
                if x + wide > self.width:
                    lines.append([])
                    x = 1.0
                lines[-1].append(entry | {"x": x})
                x += wide
        return lines

    def draw(self, place: Mapping[str, str]) -> Markup:
        """Columns below ribbons below blocks."""
        order = sorted(range(len(self.routes)), key=lambda at: _order_of(self.picture.ways[at]))
        legend = self.legend
        tall = self.height + (5 + 17 * len(legend) if legend else 0)
        most = f"max-width: {self.width * 1.12:.0f}px"
        look = {
            "class": "dw-devices",
            "aria-label": picture_words(self.picture),
            "font-size": "12",
            "fill": INK,
            "role": "img",
            "style": f"color-scheme: light dark; width: 100%; {most}; height: auto; font-family: {SANS_FONT}",
            "width": f"{self.width:.0f}",
            "height": f"{tall:.0f}",
            "viewBox": f"0 0 {self.width:.0f} {tall:.0f}",
        }
        return render(
            "devices.svg",
            drawing=self,
            tall=tall,
            legend=legend,
            look=look | dict(place),
            columns=list(map(self._lay_column, self.picture.columns, self.lefts, self.widths)),
            ways=list(map(self._lay_way, order)),
            blocks=list(map(self._lay_block, self.picture.blocks, self.boxes)),
            labels=list(self._lay_labels(order)),
            lay_key=lambda x, y, kind: _lay_ribbon(((x, y), (x + 24, y)), None, kind, 2.5),
            BOX=_BOX,
            WALL=_WALL,
            PAPER=PAPER,
            SOFT_INK=SOFT_INK,
            WRONG=WRONG,
        )

    def _lay_column(self, column: DeviceColumn, left: float, wide: float) -> Laid:
        bottom = self.height - 1
        x = left + _inset(column.device, wide)
        room = wide - (x - left)
        name = str(column.device)
        if len(name) * _BOLD > room - 14 and column.device.index is not None:
            name = f":{column.device.index}"
        letters = max(1, int((wide - _WALL - 8) / SMALL))
        return {
            "device": str(column.device),
            "name": name,
            "title": column_title(column, self.picture.blocks),
            "left": left,
            "wide": wide,
            "bottom": bottom,
            "x": x,
            "hue": device_hue(column.device),
            "is_round": column.device.is_accelerator,
            "taken": _longest_that_fits(taken_words(column, self.picture.blocks), room - 3),
            "refused": column.refused,
            "is_idle": column.is_idle,
            "idle_lines": [cut_line(line, letters) for line in idle_words()],
            "middle": left + _WALL + (wide - _WALL) / 2,
            **self._lay_wall(column, bottom),
        }

    def _lay_wall(self, column: DeviceColumn, bottom: float) -> Laid:
        """The left wall is the memory of a device, filled from below; all walls have one scale."""
        if not _has_wall(column):
            return {"wall": 0.0}
        whole = (bottom - 1) * column.capacity / max(map(attrgetter("capacity"), self.picture.columns))
        parts, y = [], bottom
        for part, size in column.parts:
            tall = max(min(size, 1.0), whole * size / column.capacity)
            y = max(y - tall, 1.0)
            words = f"{part_name(part)}: {format_bytes(size)}, {size / column.capacity:.0%}"
            parts.append((y, tall, CATEGORY_HUES[part], words))
        return {"wall": whole, "parts": parts}

    def _lay_block(self, block: Block, box: RibbonBox) -> Laid:
        hue, is_tensor = device_hue(block.device), block.what == "tensor"
        is_round = block.what in ("tensor", "batch", "outputs")
        right = box.x + box.width - (3 if box.width < 60 else 7)
        cross, edge = None, hue
        if block.wrong and is_tensor:
            edge = WRONG
        elif block.wrong:
            cross = right - 5
            right -= 16
        return {
            "title": block_title(block),
            "box": box,
            "y": self.page.tops[box.row],
            "hue": hue,
            "edge": edge,
            "radius": 13 if is_round else 3,
            "is_module": block.what == "module",
            "is_dashed": block.what != "module" and not block.wrong,
            "is_run": bool(block.unfolds) and len(block.paths) > 1,
            "cross": cross,
            "texts": list(_lay_names(block, box, right, is_round=is_round)),
            "data": _data(module=block.path, unfolds=block.unfolds, what=block.what),
        }

    def _lay_way(self, at: int) -> Laid:
        way, route = self.picture.ways[at], self.routes[at]
        source, target = self.picture.blocks[way.source], self.picture.blocks[way.target]
        number = module = ""
        if way.moves:
            number = str(way.moves[0].number)
        if way.call is not None:
            module = way.call.wrapper
        facts = {"kind": way.kind, "number": number, "way": str(at), "step": way.step}
        return {
            "title": way_title(way, self.picture),
            "line": _lay_ribbon(route.points, route.rises, way.kind, self._thickness(way)),
            "reach": round_path(route.points),
            "data": _data(**facts, source=str(source.device), target=str(target.device), module=module),
        }

    def _thickness(self, way: Way) -> float:
        most = max(map(attrgetter("bytes"), self.picture.ways), default=0) or 1
        thick = _THICK if len(self.picture.columns) < 5 else 3.0
        return _THIN + thick * math.sqrt(way.bytes / most)

    def _lay_labels(self, order: list[int]) -> Iterator[Text]:
        """The step of DataParallel and the bytes next to each head, or one of them, as far as there is room on its box."""
        heads = group_by(reversed(order), lambda at: self.routes[at].points[-1])
        sides = Counter(self._side_of(members[0]) for members in heads.values())
        for (x, tip), members in heads.items():
            ways = [self.picture.ways[at] for at in members]
            target, to_right, rises = self._side_of(members[0])
            box, gap = self.boxes[target], max(_head_size(self._thickness(way)) for way in ways) * _HALF + 3
            room = abs(box.x + box.width * to_right - x) - gap
            if sides[target, to_right, rises] > 1:
                room = min(PORT, box.width * PORT_SHARE) - 2 * gap
            elif sides[target, not to_right, rises]:
                room -= box.width / 2
            words = _longest_that_fits(_label_forms(ways), room)
            look = {"font-size": "11", "fill": SOFT_INK, "text-anchor": "start" if to_right else "end"}
            if ways[0].kind in ("healed", "stopped"):
                look |= {"fill": WRONG, "font-weight": "600"}
            yield x + (gap if to_right else -gap), tip + (13 if rises else -4), words, look

    def _side_of(self, at: int) -> tuple[int, bool, bool]:
        """The block that a ribbon enters, and from which side."""
        return self.picture.ways[at].target, self.routes[at].to_right, self.routes[at].rises


def _label_forms(ways: Sequence[Way]) -> list[str]:
    words, step = format_bytes(total(ways, "bytes")), ways[0].step
    if step:
        return [f"{code_word(step)} {words}", code_word(step), words]
    return [words]


def _longest_that_fits(forms: Sequence[str], room: float) -> str:
    for form in forms:
        if columns_of(form) * SMALL <= room:
            return form
    return ""


def _has_wall(column: DeviceColumn) -> bool:
    return bool(column.capacity) and column.device.is_accelerator


def _order_of(way: Way) -> tuple[int, int]:
    """Gradients, copies by their bytes, what is wrong last and above all."""
    return ("gradient", "copy", "healed", "stopped").index(way.kind), way.bytes


def _place_columns(picture: Picture, width: int) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Left edge and width of each column, and the gutter between them."""
    shares = [0.5 if column.is_idle else 1.0 for column in picture.columns]
    low, high = _GUTTERS
    gutter = max(low, min(high, width * 0.2 / max(1, len(shares) - 1)))
    room = (width - 2 - gutter * (len(shares) - 1)) / sum(shares)
    widths = tuple(min(room, _WIDEST) * share for share in shares)
    lefts = tuple(sum(widths[:at]) + gutter * at for at in range(len(widths)))
    return lefts, widths, gutter


def _place_box(block: Block, column: int, lefts: tuple[float, ...], widths: tuple[float, ...]) -> RibbonBox:
    inset = _inset(block.device, widths[column])
    return RibbonBox(block.row, column, lefts[column] + inset, widths[column] - inset - _pad(widths[column]))


def _inset(device: DeviceId, column: float) -> float:
    """Pixels left of the boxes of a column, with the wall of an accelerator."""
    if device.is_accelerator:
        return _WALL + _pad(column)
    return _pad(column)


def _pad(column: float) -> float:
    """Pixels next to the boxes of a column."""
    return 9.0 if column > 100 else 5.0


def _lay_names(block: Block, box: RibbonBox, right: float, *, is_round: bool) -> Iterator[tuple[float, str, dict[str, str]]]:
    """Name, kind and bytes, as far as there is room: the name before all others, and of it its end."""
    x = box.x + (12 if is_round else 9) - (3 if box.width < 60 else 0)
    size, kind, room = some_bytes(block.bytes), block_kind(block), right - x
    size_wide = columns_of(size) * SMALL + 8 if size else 0.0
    name_room = room - size_wide if box.width > 150 else room
    name = _shorten(block_name(block), int(name_room / MONO))
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
    if columns_of(path) <= letters or "[" in path:
        return cut_line(path, max(1, letters))
    end = path
    for start in re.finditer(r"\.|(?<!,) ", path):
        end = path[start.end() :]
        if columns_of(end) <= letters:
            return end
    return cut_line(end, max(1, letters))


def _head_size(thick: float) -> float:
    return 5 + thick


def _lay_ribbon(points: Sequence[Point], rises: bool | None, kind: Kind, thick: float) -> Laid:
    """A line with its head; without `rises` it lies level."""
    (x, tip), size = points[-1], _head_size(thick)
    far, half = size * 0.9, size * _HALF
    if rises is None:
        base, cross = (x - far, tip), (x - 5, tip)
        head = f"M{base[0]:.1f} {tip - half:.1f}V{tip + half:.1f}L{x:.1f} {tip:.1f}Z"
    else:
        sign = 1 if rises else -1
        base, cross = (x, tip + sign * far), (x, tip + sign * 5)
        head = f"M{x - half:.1f} {base[1]:.1f}H{x + half:.1f}L{x:.1f} {tip:.1f}Z"
    laid: Laid = {"path": round_path([*points[:-1], base]), "head": head, "thick": thick, "hue": HOP_HUE, "cross": None}
    laid |= {"is_wrong": kind in ("healed", "stopped"), "is_hollow": kind == "gradient"}
    if laid["is_wrong"]:
        laid["hue"] = WRONG
    if laid["is_hollow"]:
        laid["thick"] = max(thick, 3.2)
    if kind == "stopped":
        laid["cross"] = cross
    return laid


def _data(**facts: str) -> dict[str, str]:
    """Attributes by which a page finds what can be pointed at."""
    return {f"data-{name}": text for name, text in facts.items() if text}
