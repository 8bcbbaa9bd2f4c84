"""A trace on lanes: boxes for modules, arrows for hops, faults; by order and by time. The page draws the part that is seen."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.report.figures.frame import Figure, base_layout
from devwidget.report.style.palette import HOP_HUE, INK, SOFT_INK, WRONG, device_hue, fade
from devwidget.report.style.safe_text import plotly_text
from devwidget.report.style.units import count_words, format_bytes, some_seconds
from devwidget.report.style.words import code_word, first_line, module_words, row_words, site_words
from devwidget.report.text.memory_words import refusal_words
from devwidget.views.clock import Clock
from devwidget.views.sums import group_by, total, values_once
from devwidget.views.timeline import Arrow, Band, Box, Timeline

_MOST_ARROWS = 20_000
_LEVELS = ((3, 6), (5, 4), (math.inf, 3))
"""Up to so many lanes: so many rows of boxes in each."""
_EMPTY_SHARE = 0.12
"""Length of a phase in which nothing is drawn, as a share of all others."""
_ROW, _GAP = 18, 0.45
"""Height of a row in pixels; gap between lanes in rows."""
_MARGIN = {"l": 76, "r": 8, "t": 20, "b": 20}
_OVERVIEW = 30
"""Height of the overview in pixels."""
_STRIPS = 1000
"""Row in which the overview begins, out of sight of the lanes."""
_NEAR = 10
"""Marks that are fewer pixels apart are drawn as one."""
_FINE = 2
"""Boxes that are narrower, in pixels, are drawn as one."""


@dataclass(frozen=True)
class _Floor:
    """Where lanes are, counted in rows from the top.

    Attributes:
        tops: Of each lane; None for what runs on several devices.
        levels: Rows below the top of the first box of a module in a lane.
        height: Of all lanes.
        most: Rows of boxes that a lane may have.
    """

    tops: dict[DeviceId | None, float]
    levels: dict[tuple[DeviceId | None, str | None], int]
    height: float
    most: int

    def middle(self, lane: DeviceId | None, module: str | None = None) -> float:
        """The middle of a module's row, or of the first row."""
        return self.tops[lane] + self.levels.get((lane, module), 0) + 0.5


def timeline_figure(lanes: Timeline, clock: Clock | None = None) -> Figure:
    """Rows of plotly traces with their places on each axis, `order` and `time`, which `timeline.js` makes a figure of.

    Args:
        clock: Tells when things happened; without one there is no axis of time.
    """
    floor = _lay_floor(lanes)
    arrows = sorted(lanes.arrows, key=lambda arrow: -arrow.move.all_bytes)[:_MOST_ARROWS]
    rows = [*_box_rows(lanes, floor), *_hop_rows(arrows, floor), *_fault_rows(lanes, arrows, floor)]
    last = max([*(stop for row in rows for _, stop in row.places), *(band.stop for band in lanes.bands)])
    places: dict[str, Callable[[float], float]] = {"order": float}
    if clock is not None:
        places["time"] = clock.at
    axes = {name: _Axis(lanes.bands, last, at) for name, at in places.items()}
    hidden = sum(box.level >= floor.most for box in lanes.boxes)
    return {
        "words": _count_words(lanes),
        "layout": _make_layout(floor),
        "axes": {name: axis.content for name, axis in axes.items()},
        "rows": [row.content(axes) for row in rows],
        "height": floor.height,
        "left_out": lanes.left_out + hidden,
    }


class _Axis:
    """Places from 0 to 1: an empty phase is short, all else is as long as it was."""

    def __init__(self, bands: Iterable[Band], last: float, at: Callable[[float], float]) -> None:
        self._at = at
        spans = [(band, at(band.start), at(band.stop)) for band in bands]
        self._edges = sorted({0.0, max(at(last), 1e-9), *(edge for _, *span in spans for edge in span)})
        empty = {start for band, start, _ in spans if band.is_empty}
        lengths = [(stop - start, start in empty) for start, stop in pairwise(self._edges)]
        most = _EMPTY_SHARE * sum(length for length, is_empty in lengths if not is_empty) or math.inf
        self._knots = [0.0]
        for length, is_empty in lengths:
            self._knots.append(self._knots[-1] + (min(length, most) if is_empty else length))
        named = [(*_band_words(band), self.place(band.start), self.place(band.stop)) for band, *_ in spans]
        knots = [knot / self._knots[-1] for knot in self._knots]
        grounds = [_draw_ground(at, *band[1:]) for at, band in enumerate(named)]
        self.content = {"places": self._edges, "knots": knots, "bands": list(map(list, named)), "grounds": grounds}

    def place(self, number: float) -> float:
        """Where a place in the trace is."""
        at = self._at(number)
        after = min(bisect_left(self._edges, at, lo=1), len(self._edges) - 1)
        (first, last), (start, stop) = self._edges[after - 1 : after + 1], self._knots[after - 1 : after + 1]
        share = min(1, max(0, (at - first) / (last - first)))
        return round((start + share * (stop - start)) / self._knots[-1], 7)


def _band_words(band: Band) -> tuple[str, list[str]]:
    """Its name, and what is in a phase in which nothing is drawn."""
    if band.is_empty:
        return code_word(band.phase), [count_words(band.operators, "operator"), say("no hop")]
    return code_word(band.phase), []


def _draw_ground(at: int, words: list[str], start: float, stop: float) -> Figure:
    """Every second phase is tinted, and one in which nothing is drawn."""
    tint = f"rgba(128,128,128,{0.06 if words else 0.03 * (at % 2)})"
    place = {"type": "rect", "layer": "below", "yref": "paper", "y0": 0, "y1": 1, "x0": start, "x1": stop}
    return place | {"line": {"width": 0}, "fillcolor": tint}


@dataclass(frozen=True)
class _Row:
    """What looks alike, and lies in one row or leads from one lane to another.

    Attributes:
        traces: Attributes of plotly; each draws all of it.
        near: Pixels below which neighbours are one.
        places: Start and stop of each, from left to right.
        facts: Words of each, and what a click on it leads to.
        names: What is written into each box.
        wide: Pixels of each arrow.
    """

    traces: list[Figure]
    near: int
    places: list[tuple[float, float]]
    facts: list[list[Any]]
    names: Sequence[str] = ()
    wide: Sequence[float] = ()

    def content(self, axes: dict[str, _Axis]) -> Figure:
        content: Figure = {"traces": self.traces, "near": self.near, "facts": self.facts}
        content |= {"names": list(self.names), "wide": list(self.wide)}
        for name, axis in axes.items():
            content[name] = [[axis.place(start), axis.place(stop)] for start, stop in self.places]
        return content


def _lay_floor(lanes: Timeline) -> _Floor:
    most = next(rows for count, rows in _LEVELS if len(lanes.lanes) <= count)
    shown = [box for box in lanes.boxes if box.level < int(most)]
    counts: dict[DeviceId | None, int] = {}
    if any(box.lane is None for box in shown):
        counts[None] = 1
    counts |= dict.fromkeys(lanes.lanes, 1)
    levels: dict[tuple[DeviceId | None, str | None], int] = {}
    for box in shown:
        counts[box.lane] = max(counts[box.lane], box.level + 1)
        levels.setdefault((box.lane, box.path), box.level)
    tops, height = {}, 0.0
    for lane, count in counts.items():
        tops[lane] = height
        height += count + _GAP
    return _Floor(tops, levels, height, int(most))


def _make_layout(floor: _Floor) -> Figure:
    """Lanes with their names, and below them the overview, whose rows are far below the lanes."""
    plot = round(floor.height * _ROW)
    layout = base_layout(_MARGIN["t"] + plot + _OVERVIEW + 60, _MARGIN)
    pointer = {
        "type": "line",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"width": 1.5, "dash": "dash", "color": INK},
        "name": "pointer",
    }
    middles = [floor.middle(lane) for lane in floor.tops]
    names = [f"<b>{plotly_text(str(lane))}</b>" if lane else say("multiple") for lane in floor.tops]
    axis: Figure = {"showgrid": False, "zeroline": False}
    slider = {"visible": True, "range": [0, 1], "thickness": _OVERVIEW / plot, "borderwidth": 1, "bgcolor": "rgba(0,0,0,0)"}
    strips = {"rangemode": "fixed", "range": [_STRIPS + len(floor.tops), _STRIPS]}
    return layout | {
        "barmode": "overlay",
        "showlegend": False,
        "hovermode": "closest",
        "hoverdistance": 8,
        "dragmode": "zoom",
        "pointer": pointer,
        "xaxis": axis | {"tickfont": {"size": 11}, "rangeslider": slider | {"yaxis": strips}},
        "yaxis": axis | {"range": [floor.height, -0.1], "fixedrange": True, "tickvals": middles, "ticktext": names},
    }


_HOVER = {"hovertemplate": "%{customdata[0]}<extra></extra>"}
_STRIP = {"hoverinfo": "none", "meta": "strip"}
"""Attributes of all traces in the overview."""
_NAMES = {
    "textposition": "inside",
    "insidetextanchor": "start",
    "textangle": 0,
    "constraintext": "none",
    "textfont": {"size": 11},
}


def _bar(y: float, marker: Figure, height: float) -> Figure:
    """Boxes side by side."""
    return {"type": "bar", "orientation": "h", "y": y, "width": height, "marker": marker}


def _box_rows(lanes: Timeline, floor: _Floor) -> Iterator[_Row]:
    strips = {lane: _STRIPS + 0.5 + at for at, lane in enumerate(floor.tops)}
    shown = (box for box in lanes.boxes if box.level < floor.most)
    for (lane, level, failed, is_gradient), boxes in group_by(shown, _look_of).items():
        hue = device_hue(lane) if lane else SOFT_INK
        marker: Figure = {"color": fade(hue, 0.3 - 0.04 * level), "line": {"width": 0.75, "color": fade(hue, 0.6)}}
        if failed:
            marker["line"] = {"width": 2, "color": WRONG}
        if is_gradient:
            marker["pattern"] = {"shape": "/", "size": 6, "solidity": 0.3, "fillmode": "overlay", "fgcolor": fade(hue, 0.5)}
        traces = [_bar(floor.tops[lane] + level + 0.5, marker, 0.94) | _HOVER | _NAMES]
        if not level:
            traces.append(_bar(strips[lane], {"color": hue}, 0.5) | _STRIP)
        names = [box.path.rpartition(".")[2] or box.class_name for box in boxes]
        facts = [[_box_words(box), {"path": box.path}] for box in boxes]
        yield _Row(traces, _FINE, [(box.start, box.stop) for box in boxes], facts, names)


def _look_of(box: Box) -> tuple[DeviceId | None, int, bool, bool]:
    return box.lane, box.level, box.failed, box.is_gradient


def _marks(y: float, symbol: str, hue: str, size: int, **more: Any) -> Figure:
    marker = {"symbol": symbol, "size": size, "color": hue, "line": {"width": 1, "color": "rgba(255,255,255,0.9)"}} | more
    return {"type": "scatter", "mode": "markers", "y": y, "marker": marker, "cliponaxis": False} | _HOVER


def _hop_rows(arrows: list[Arrow], floor: _Floor) -> Iterator[_Row]:
    """A stem as wide as its bytes, a ring where it leaves, a head; a healed one is dotted and ends in its fault."""
    largest = max((arrow.move.all_bytes for arrow in arrows), default=0)

    def way_of(arrow: Arrow) -> tuple[float, float, bool, bool]:
        ends = floor.middle(arrow.move.source), floor.middle(arrow.move.target, arrow.move.module)
        return (*ends, arrow.move.cause == "healed", arrow.cross is not None)

    for (start, stop, healed, has_cross), own in group_by(sorted(arrows, key=lambda arrow: arrow.at), way_of).items():
        hue = WRONG if healed else HOP_HUE
        body: Figure = {"color": hue}
        if healed:
            body = {"color": "rgba(0,0,0,0)", "pattern": {"shape": "-", "size": 5, "solidity": 0.6, "fgcolor": hue}}
        stem = {"type": "bar", "orientation": "v", "base": start, "y": stop - start, "marker": body} | _HOVER
        head = _marks(stop, "triangle-up", hue, 11)
        if has_cross:
            head = _fault_marks(stop)
        elif stop > start:
            head["marker"]["symbol"] = "triangle-down"
        ring = _marks(start, "circle-open", hue, 6, line={"width": 1.5, "color": hue})
        wide = [2 + 4.5 * math.sqrt(arrow.move.all_bytes / max(largest, 1)) for arrow in own]
        facts = [[_hop_words(arrow), _find_target(arrow)] for arrow in own]
        places = [(arrow.at, arrow.at) for arrow in own]
        yield _Row([stem, ring, head, _stems(hue)], _NEAR, places, facts, wide=wide)


def _fault_marks(y: float) -> Figure:
    return _marks(y, "x", WRONG, 11)


def _stems(hue: str) -> Figure:
    """The same in the overview."""
    mark = _marks(_STRIPS + 0.5, "line-ns", hue, 40, line={"width": 1, "color": hue})
    return mark | _STRIP | {"hovertemplate": None}


def _fault_rows(lanes: Timeline, arrows: list[Arrow], floor: _Floor) -> Iterator[_Row]:
    """Crosses of faults without an arrow, and squares for what did not fit."""
    joined = values_once(arrows, "cross")
    alone = [cross for cross in lanes.crosses if cross not in joined]
    for y, own in group_by(alone, lambda cross: floor.middle(cross.lane, cross.module)).items():
        row = _Row([_fault_marks(y), _stems(WRONG)], _NEAR, [], [])
        for cross in own:
            target: dict[str, Any] = {"path": cross.module}
            if cross.finding >= 0:
                target = {"finding": cross.finding}
            row.places.append((cross.at, cross.at))
            row.facts.append([_mark_words(said(cross.headline), cross.module), target])
        yield row
    for mark in lanes.refusals:
        module, y = mark.refusal.module, floor.middle(mark.curve.device, mark.refusal.module)
        words = _mark_words(refusal_words(mark.curve, mark.refusal), module)
        square = _marks(y, "square", WRONG, 10)
        yield _Row([square, _stems(WRONG)], _NEAR, [(mark.at, mark.at)], [[words, {"path": module}]])


def _count_words(lanes: Timeline) -> str:
    calls = sum(not box.is_gradient for box in lanes.boxes)
    hops = count_words(total(lanes.arrows, "move.count"), "hop")
    return row_words((count_words(calls, "module call"), hops, count_words(len(lanes.lanes), "device")))


def _join_lines(*lines: str) -> str:
    return "<br>".join(filter(None, lines))


def _plain(words: str) -> str:
    return plotly_text(words.replace("`", ""))


def _module_line(path: str | None) -> str:
    return "" if path is None else plotly_text(module_words(path))


def _mark_words(words: str, module: str | None) -> str:
    return _join_lines(f"<b>{_plain(words)}</b>", _module_line(module))


def _box_words(box: Box) -> str:
    facts = [str(box.lane), some_seconds(box.seconds)]
    if box.lane is None:
        facts[0] = say("on several devices")
    if box.is_gradient:
        facts[0] = say("gradients on {device}", device=box.lane)
    if box.calls > 1:
        facts.append(count_words(box.calls, "call"))
    if box.replica >= 0:
        facts.append(say("replica {number}", number=box.replica))
    if box.failed:
        facts.append(say("one call failed"))
    name = f"<b>{plotly_text(module_words(box.path))}</b> {plotly_text(box.class_name)}"
    return _join_lines(name, plotly_text(row_words(facts)))


def _hop_words(arrow: Arrow) -> str:
    move, site, fault = arrow.move, arrow.move.site, ""
    about = [format_bytes(move.all_bytes)]
    if move.count > 1:
        about.append(count_words(move.count, "hop"))
    if move.cause == "healed":
        about.append(say("moved by devwidget"))
    if arrow.cross is not None:
        fault = _plain(said(arrow.cross.headline))
    way = plotly_text(f"{move.source} → {move.target}")
    line = plotly_text(f"{site_words(site)}  {first_line(site)}".strip())
    return _join_lines(f"<b>{way}</b> {row_words(about)}", fault, _module_line(move.module), line)


def _find_target(arrow: Arrow) -> dict[str, Any]:
    """What a click on an arrow leads to."""
    if arrow.cross is not None and arrow.cross.finding >= 0:
        return {"finding": arrow.cross.finding}
    return {"hop": arrow.hop}
