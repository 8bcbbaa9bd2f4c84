"""A trace as lanes: one for each device, modules as boxes, hops as arrows, faults as crosses."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from devwidget.records.device import DeviceId
from devwidget.records.trace import Move
from devwidget.report.figures.frame import GRID, Figure, base_layout, figure, label_axis
from devwidget.report.palette import device_hue
from devwidget.report.units import counted, format_bytes, format_seconds
from devwidget.report.words import module_words, site_words, tensor_words
from devwidget.views.timeline import Box, Timeline

_MOST_ARROWS = 200


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where lanes and boxes stand, in rows from the top.

    Attributes:
        boxes: those that are drawn; many lanes get fewer levels each.
        top, height: of each lane.
        levels: of each box, by path and lane.
    """

    boxes: tuple[Box, ...]
    top: dict[DeviceId, int]
    height: dict[DeviceId, int]
    levels: dict[tuple[str, DeviceId], int]

    def of(self, module: str | None, lane: DeviceId) -> int:
        """The row of a module's box, of its lane's first one where the module has none."""
        return self.top[lane] + self.levels.get((module or "", lane), 0)


def _rows(lanes: Timeline) -> _Rows:
    most = 5 if len(lanes.lanes) <= 3 else 3 if len(lanes.lanes) <= 5 else 2
    boxes = tuple(box for box in lanes.boxes if box.level < most)
    top: dict[DeviceId, int] = {}
    height: dict[DeviceId, int] = {}
    for lane in lanes.lanes:
        top[lane] = sum(height.values()) + len(height)
        height[lane] = 1 + max((box.level for box in boxes if box.lane == lane), default=0)
    return _Rows(boxes, top, height, {(box.path, box.lane): box.level for box in boxes})


def timeline_figure(lanes: Timeline) -> Figure:
    """One lane for each device: modules as boxes, hops as arrows, faults as crosses; order to the right."""
    rows = _rows(lanes)
    total = sum(rows.height.values()) + len(rows.height)
    data = [_boxes(lane, rows) for lane in lanes.lanes]
    data += [_arrow(move, rows) for move in lanes.moves[:_MOST_ARROWS]]
    data += [_crosses(lanes, rows)] if lanes.faults else []
    layout = base_layout(60 + 20 * total, {"l": 8, "r": 12, "t": 8, "b": 28})
    layout |= {"barmode": "overlay", "showlegend": False, "bargap": 0, "uniformtext": {"mode": "hide", "minsize": 10}}
    layout["yaxis"] = label_axis() | {
        "range": [total - 0.4, -0.8],
        "tickmode": "array",
        "tickvals": [rows.top[lane] + (rows.height[lane] - 1) / 2 for lane in lanes.lanes],
        "ticktext": [f"<b>{lane}</b> " for lane in lanes.lanes],
        "fixedrange": True,
    }
    layout["xaxis"] = {"gridcolor": GRID, "zeroline": False, "title": {"text": _axis_words(lanes, rows), "font": {"size": 11}}}
    parts = ((lanes.boxes, "module call"), (lanes.moves, "hop"), (lanes.lanes, "device"))
    words = ", ".join(counted(len(things), noun) for things, noun in parts)
    return figure(data, layout, words)


def _axis_words(lanes: Timeline, rows: _Rows) -> str:
    hidden = lanes.left_out + len(lanes.boxes) - len(rows.boxes)
    return "order of events" + (f"; {counted(hidden, 'call')} deeper inside not drawn" if hidden else "")


def _boxes(lane: DeviceId, rows: _Rows) -> Figure:
    boxes = [box for box in rows.boxes if box.lane == lane]
    return {
        "type": "bar",
        "orientation": "h",
        "name": str(lane),
        "base": [box.start for box in boxes],
        "x": [max(box.stop - box.start, 0.6) for box in boxes],
        "y": [rows.top[lane] + box.level for box in boxes],
        "width": 0.9,
        "text": [escape(box.path.rpartition(".")[2] or box.class_name) for box in boxes],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "cliponaxis": True,
        "textfont": {"size": 11},
        "marker": {
            "color": device_hue(lane),
            "opacity": [0.3 + 0.1 * box.level for box in boxes],
            "line": {
                "width": [2 if box.failed else 0.5 for box in boxes],
                "color": ["#d33" if box.failed else device_hue(lane) for box in boxes],
            },
        },
        "customdata": [[_box_words(box), box.path] for box in boxes],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "meta": "modules",
    }


def _box_words(box: Box) -> str:
    name = escape(module_words(box.path))
    calls = f", {counted(box.calls, 'call')}" if box.calls > 1 else ""
    replica = f", replica {box.replica}" if box.replica >= 0 else ""
    failed = "<br>a call raised" if box.failed else ""
    return f"<b>{name}</b> {escape(box.class_name)}<br>{box.lane}, {format_seconds(box.seconds)}{calls}{replica}{failed}"


def _arrow(move: Move, rows: _Rows) -> Figure:
    words = (
        f"{move.source} → {move.target}, {format_bytes(move.bytes)}"
        + (f" × {move.count}" if move.count > 1 else "")
        + f"<br>{move.cause}, {tensor_words(move.dtype, move.shape)}<br>{escape(site_words(move.site))}"
    )
    colour = "#d33" if move.cause == "healed" else "#e0a100"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [move.number, move.number],
        "y": [rows.top[move.source], rows.of(move.module, move.target)],
        "line": {"width": 2, "color": colour, "dash": "dot" if move.cause == "healed" else "solid"},
        "marker": {"symbol": "arrow", "angleref": "previous", "size": [0, 11], "color": colour},
        "text": words,
        "hovertemplate": "%{text}<extra></extra>",
        "meta": "hop",
    }


def _crosses(lanes: Timeline, rows: _Rows) -> Figure:
    """Each fault on the box of its module."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [position for position, _, _ in lanes.faults],
        "y": [rows.of(module, lane) for _, lane, module in lanes.faults],
        "marker": {"symbol": "x", "size": 11, "color": "#d33", "line": {"width": 1.5, "color": "#fff"}},
        "hovertemplate": "fault<extra></extra>",
        "meta": "fault",
    }
