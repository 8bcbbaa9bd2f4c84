"""A trace as lanes: one for each device, modules as boxes, hops as arrows, faults as crosses, phases as bands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.records.trace import Move
from devwidget.report.figures.frame import GRID, Figure, base_layout, find_differences, label_axis, make_figure
from devwidget.report.style.palette import HOP_HUE, WRONG, device_hue
from devwidget.report.style.safe_text import columns_of, plotly_text
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import code_word, module_words, row_words, site_words, tensor_words
from devwidget.views.timeline import Arrow, Band, Box, Cross, Timeline

_MOST_ARROWS = 200
_MOST_EXAMPLES = 4
_THINNEST_PX, _THICKEST_PX = 1.5, 7.0
_FAULT, _HOP = WRONG, HOP_HUE
_PHASE_NAMES = {"optimizer": Message("optimizer step")}
_NAME_LETTER = 0.012
"""Width of a letter above the lanes, as a share of a page of 560 pixels."""
_ABOVE: Figure = {"xref": "x", "yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False, "font": {"size": 11}}


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

    def row_of(self, module: str | None, lane: DeviceId) -> int:
        """The row of a module's box, of its lane's first one where the module has none."""
        return self.top[lane] + self.levels.get((module or "", lane), 0)


def _place_rows(lanes: Timeline) -> _Rows:
    most = 5 if len(lanes.lanes) <= 3 else 3 if len(lanes.lanes) <= 5 else 2
    boxes = tuple(box for box in lanes.boxes if box.level < most)
    top: dict[DeviceId, int] = {}
    height: dict[DeviceId, int] = {}
    for lane in lanes.lanes:
        top[lane] = sum(height.values()) + len(height)
        height[lane] = 1 + max((box.level for box in boxes if box.lane == lane), default=0)
    return _Rows(boxes, top, height, {(box.path, box.lane): box.level for box in boxes})


def timeline_figure(lanes: Timeline, timed: Timeline | None = None) -> Figure:
    """One lane for each device: modules as boxes, hops as arrows, faults as crosses; order to the right.

    Args:
        timed: the same by time; what differs then is under `variants`, for a page to switch to.
    """
    drawn = _draw_lanes(lanes)
    return drawn if timed is None else drawn | {"variants": {"time": find_differences(drawn, _draw_lanes(timed))}}


def _draw_lanes(lanes: Timeline) -> Figure:
    rows = _place_rows(lanes)
    total = sum(rows.height.values()) + len(rows.height)
    dearest = sorted(lanes.arrows, key=lambda arrow: -arrow.bytes)[:_MOST_ARROWS]
    data = [_draw_boxes(lane, rows, lanes) for lane in lanes.lanes]
    data += [_draw_arrow(arrow, rows, dearest[0].bytes) for arrow in dearest]
    data += [_draw_crosses(lanes.crosses, rows)] if lanes.crosses else []
    layout = base_layout(78 + 20 * total, {"l": 8, "r": 12, "t": 26, "b": 28})
    layout |= {"barmode": "overlay", "showlegend": False, "bargap": 0, "uniformtext": {"mode": "hide", "minsize": 10}}
    layout |= {"shapes": [_draw_band(band, at) for at, band in enumerate(lanes.bands)], "annotations": _band_names(lanes.bands)}
    layout["yaxis"] = label_axis() | {
        "range": [total - 0.4, -0.8],
        "tickmode": "array",
        "tickvals": [rows.top[lane] + (rows.height[lane] - 1) / 2 for lane in lanes.lanes],
        "ticktext": [f"<b>{plotly_text(str(lane))}</b> " for lane in lanes.lanes],
        "fixedrange": True,
    }
    layout["xaxis"] = {"gridcolor": GRID, "zeroline": False, "title": {"text": _axis_words(lanes, rows), "font": {"size": 11}}}
    if lanes.seconds:
        layout["xaxis"] |= {"tickformat": "~s", "ticksuffix": "s"}
    hops = sum(arrow.count for arrow in lanes.arrows)
    parts = ((_count_calls(lanes.boxes), "module call"), (hops, "hop"), (len(lanes.lanes), "device"))
    return make_figure(data, layout, row_words(count_words(number, noun) for number, noun in parts))


def _count_calls(boxes: Iterable[Box]) -> int:
    """How many calls they are: one that ran on several devices has a box on each."""
    return len({(box.path, box.replica) for box in boxes})


def _axis_words(lanes: Timeline, rows: _Rows) -> str:
    hidden = lanes.left_out + _count_calls(lanes.boxes) - _count_calls(rows.boxes)
    axis = say("time on the host") if lanes.seconds else say("order of events")
    return say("{axis}; {calls} deeper inside not drawn", axis=axis, calls=count_words(hidden, "call")) if hidden else axis


def _draw_band(band: Band, at: int) -> Figure:
    """Behind the lanes, every other one darker."""
    shade = "rgba(128,128,128,0.10)" if at % 2 else "rgba(128,128,128,0.04)"
    place = {"x0": band.start, "x1": band.stop, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    return {"type": "rect", "layer": "below", "fillcolor": shade, "line": {"width": 0}} | place


def _band_names(bands: tuple[Band, ...]) -> list[Figure]:
    """Above the lanes; a name wider than its band ends with it, over the end of the band before, if there is room for both."""
    whole = max((band.stop for band in bands), default=1) - min((band.start for band in bands), default=0)
    free, notes = 0.0, []
    for band in bands:
        name = said(_PHASE_NAMES[band.phase]) if band.phase in _PHASE_NAMES else code_word(band.phase)
        needed = _NAME_LETTER * columns_of(name) * whole
        ends = band.stop - band.start < needed
        start = band.stop - needed if ends else band.start
        if start >= free:
            free = start + needed
            place = {"x": band.stop, "xanchor": "right"} if ends else {"x": band.start, "xanchor": "left"}
            notes.append(_ABOVE | place | {"text": name, "name": band.phase})
    return notes


def _draw_boxes(lane: DeviceId, rows: _Rows, lanes: Timeline) -> Figure:
    boxes = [box for box in rows.boxes if box.lane == lane]
    return {
        "type": "bar",
        "orientation": "h",
        "name": plotly_text(str(lane)),
        "base": [box.start for box in boxes],
        "x": [max(box.stop - box.start, 0 if lanes.seconds else 0.6) for box in boxes],
        "y": [rows.top[lane] + box.level for box in boxes],
        "width": 0.9,
        "text": [plotly_text(box.path.rpartition(".")[2] or box.class_name) for box in boxes],
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
                "color": [_FAULT if box.failed else device_hue(lane) for box in boxes],
            },
        },
        "customdata": [[_box_words(box), box.path] for box in boxes],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "meta": "modules",
    }


def _box_words(box: Box) -> str:
    name = plotly_text(module_words(box.path))
    calls = f", {count_words(box.calls, 'call')}" if box.calls > 1 else ""
    replica = ", " + say("replica {number}", number=box.replica) if box.replica >= 0 else ""
    failed = "<br>" + say("a call raised") if box.failed else ""
    seconds = f", {format_seconds(box.seconds)}" if box.seconds else ""
    ran = f"{plotly_text(str(box.lane))}{seconds}{calls}{replica}{failed}"
    return f"<b>{name}</b> {plotly_text(box.class_name)}<br>{ran}"


def _draw_arrow(arrow: Arrow, rows: _Rows, largest: int) -> Figure:
    """As wide as its bytes, on a scale of square roots; moves of the healer dotted and red."""
    healed = arrow.cause == "healed"
    colour = _FAULT if healed else _HOP
    tip = {"symbol": "arrow", "angleref": "previous", "color": colour, "line": {"width": 0}}
    width = _THINNEST_PX + (_THICKEST_PX - _THINNEST_PX) * math.sqrt(arrow.bytes / largest if largest else 0)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [arrow.at, arrow.at],
        "y": [rows.top[arrow.source], rows.row_of(arrow.module, arrow.target)],
        "line": {"width": round(width, 2), "color": colour, "dash": "dot" if healed else "solid"},
        "marker": tip | {"size": [0, 8 + round(width)]},
        "customdata": [[_arrow_words(arrow), arrow.module, {"hop": arrow.hop}]] * 2,
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "meta": "hop",
    }


def _arrow_words(arrow: Arrow) -> str:
    ends = plotly_text(f"{arrow.source} → {arrow.target}")
    head = f"<b>{ends}</b> {row_words((format_bytes(arrow.bytes), count_words(arrow.count, 'hop'), code_word(arrow.cause)))}"
    lines = [_move_words(move) for move in arrow.moves[:_MOST_EXAMPLES]]
    left = len(arrow.moves) - _MOST_EXAMPLES
    more = [say("and {count} more", count=left)] if left > 0 else []
    return "<br>".join([head, plotly_text(module_words(arrow.module)), *lines, *more])


def _move_words(move: Move) -> str:
    times = f" × {move.count}" if move.count > 1 else ""
    cost = ", " + say("{time} in the host", time=format_seconds(move.seconds)) if move.seconds else ""
    return plotly_text(
        f"{tensor_words(move.dtype, move.shape)} {format_bytes(move.bytes)}{times}{cost}  {site_words(move.site)}"
    )


def _draw_crosses(crosses: tuple[Cross, ...], rows: _Rows) -> Figure:
    """Each fault on the box of its module."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [cross.at for cross in crosses],
        "y": [rows.row_of(cross.module, cross.lane) for cross in crosses],
        "marker": {"symbol": "x", "size": 11, "color": _FAULT, "line": {"width": 1.5, "color": "#fff"}},
        "customdata": [[_cross_words(cross), cross.module, _finding_mark(cross)] for cross in crosses],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "meta": "fault",
    }


def _finding_mark(cross: Cross) -> dict[str, int] | None:
    return {"finding": cross.finding} if cross.finding >= 0 else None


def _cross_words(cross: Cross) -> str:
    return f"{plotly_text(said(cross.headline))}<br>{plotly_text(module_words(cross.module))}"
