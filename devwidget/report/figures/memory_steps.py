"""Memory along a trace: one small plot for each device."""

from __future__ import annotations

from html import escape

from devwidget.report.figures.frame import Figure, base_layout, byte_axis, figure, legend, paint, part_name
from devwidget.report.palette import device_hue
from devwidget.report.units import format_bytes
from devwidget.views.memory import USED, MemorySeries


def memory_steps_figure(series: tuple[MemorySeries, ...]) -> Figure:
    """One small plot for each device: bytes by category along the trace."""
    height = 30 + 150 * len(series)
    layout = base_layout(height, {"l": 8, "r": 12, "t": 8, "b": 34})
    layout["showlegend"] = False
    data: list[Figure] = []
    shown: set[str] = set()
    for place, each in enumerate(series):
        data += [_area(each, kind, sizes, place, shown) for kind, sizes in each.parts]
        layout |= _rows_of_axes(each, place, len(series))
    words = "; ".join(f"{each.device} peaks at {format_bytes(max(_totals(each), default=0))}" for each in series)
    return figure(data, layout, words) | {"legend": legend([kind for kind in USED if kind in shown])}


def _area(series: MemorySeries, kind: str, sizes: tuple[int, ...], place: int, shown: set[str]) -> Figure:
    first = kind not in shown
    shown.add(kind)
    axis = "" if place == 0 else str(place + 1)
    return {
        "type": "bar",
        "name": part_name(kind),
        "legendgroup": kind,
        "showlegend": first,
        "x": _distinct(series.labels),
        "y": list(sizes),
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
        "marker": paint(kind),
        "customdata": [
            [escape(label), phase, format_bytes(size)]
            for label, phase, size in zip(series.labels, series.phases, sizes, strict=True)
        ],
        "hovertemplate": f"{series.device}, after %{{customdata[0]}} (%{{customdata[1]}})<br>"
        f"{part_name(kind)} %{{customdata[2]}}<extra></extra>",
    }


def _distinct(labels: tuple[str, ...]) -> list[str]:
    """Category axes merge equal labels, so number the repeated ones with invisible spaces."""
    seen: dict[str, int] = {}
    texts = []
    for label in labels:
        seen[label] = seen.get(label, -1) + 1
        texts.append(escape(label) + "\u200b" * seen[label])
    return texts


def _rows_of_axes(series: MemorySeries, place: int, count: int) -> Figure:
    axis = "" if place == 0 else str(place + 1)
    top, bottom = 1 - place / count, 1 - (place + 0.72) / count
    totals = _totals(series)
    bytes_axis = byte_axis(max([*totals, 1]) * 1.12)
    return {
        f"xaxis{axis}": {
            "anchor": f"y{axis}",
            "showticklabels": place == count - 1,
            "showgrid": False,
            "tickfont": {"size": 11},
            "type": "category",
            "automargin": True,
        },
        f"yaxis{axis}": bytes_axis
        | {
            "domain": [max(bottom, 0), top],
            "anchor": f"x{axis}",
            "automargin": True,
            "title": {"text": str(series.device), "font": {"size": 12, "color": device_hue(series.device)}},
        },
        "barmode": "stack",
        "bargap": 0.25,
    }


def _totals(series: MemorySeries) -> list[int]:
    return [sum(sizes[at] for _, sizes in series.parts) for at in range(len(series.labels))]
