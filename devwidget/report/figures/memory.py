"""Memory: now as one stacked bar for each device, along a trace as one small plot for each, bytes by role."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from devwidget.language.speaking import say
from devwidget.records.memory import ROLES, MemoryPoint
from devwidget.report.figures.frame import (
    GRID,
    Figure,
    base_layout,
    byte_axis,
    label_axis,
    legend_entries,
    make_figure,
    paint_part,
)
from devwidget.report.style.palette import CATEGORY_HUES, INK, WRONG, device_hue, fade
from devwidget.report.style.safe_text import plotly_text
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import code_word, module_words, part_name, parts_words, row_words, site_words
from devwidget.report.text.memory_words import peak_words, refusal_words
from devwidget.report.text.snapshot_text import in_use_words, reserved_words
from devwidget.views.memory import BAR_PARTS, MemoryBar, MemorySeries, point_parts, refused_bytes

_SLIVER = 0.3
"""Share of the largest device below which bars to its full size say too little."""
_BAR, _PITCH = 18, 34
"""Pixels: of a bar, and from one bar to the next, which has a label of two lines."""
_BEHIND = 0.22
"""Room behind the break, in parts of the room before it."""


def memory_figure(bars: tuple[MemoryBar, ...]) -> Figure:
    """One stacked bar for each device, with the peak of the last trace as a line.

    Every bar goes to the end of its device. Where all would be slivers, the axis is broken behind what is in use.
    """
    cut, largest = _find_break(bars), max(map(attrgetter("total"), bars), default=0) or 1
    labels = list(map(_bar_label, bars))
    used = set[str]().union(*(dict(bar.parts) for bar in bars))
    data = [_draw_part(part, bars, labels, cut, largest) for part in BAR_PARTS if part in used]
    layout = base_layout(34 + _PITCH * len(bars), {"l": 8, "r": 34 if cut else 12, "t": 4, "b": 30})
    reach = max([largest, *map(attrgetter("refused"), bars)])
    layout |= {"barmode": "stack", "bargap": 1 - _BAR / _PITCH, "xaxis": _draw_axis(cut, largest, reach), "yaxis": label_axis()}
    layout |= {"showlegend": False, "shapes": [], "annotations": []}
    peaks = []
    for at, (label, bar) in enumerate(zip(labels, bars, strict=True)):
        layout["shapes"] += _draw_ends(bar, at, cut, largest)
        if cut:
            layout["annotations"].append(_draw_break(label, cut))
        if bar.peak:
            peaks.append((label, bar.peak))
    if peaks:
        data.append(_draw_peaks(*zip(*peaks, strict=True)))
    words = row_words(map(_bar_words, bars), "; ")
    return make_figure(data, layout, words) | {"legend": legend_entries([trace["meta"] for trace in data])}


def _find_break(bars: tuple[MemoryBar, ...]) -> float:
    """Where the axis is broken: somewhat behind all that is in use, where that is a sliver; 0 for nowhere."""
    largest = used = refused = 0
    for bar in bars:
        largest, used = max(largest, bar.total), max(used, bar.used, bar.peak)
        refused = max(refused, bar.refused)
    if used < _SLIVER * largest and not refused:  # what was refused is drawn behind the end, to the same scale
        return used * 1.25
    return 0.0


def _place_on_axis(size: float, cut: float, largest: float) -> float:
    """Where a number of bytes is on the axis: behind a break, all that is left takes little room."""
    if not cut or size <= cut:
        return size
    return cut * (1 + _BEHIND * (0.5 + 0.5 * (size - cut) / (largest - cut)))


def _draw_ends(bar: MemoryBar, at: int, cut: float, largest: float) -> Iterator[Figure]:
    """A thick line where a device ends, and behind it, as large as it was asked for, what was refused."""
    if not bar.known_total:
        return
    end = _place_on_axis(bar.total, cut, largest)
    place = {"xref": "x", "yref": "y", "y0": at - 0.3, "y1": at + 0.3, "x0": end}
    yield place | {"type": "line", "x1": end, "line": {"width": 3, "color": INK}, "name": "capacity"}
    if bar.refused > bar.total:
        edge = {"width": 1, "dash": "dot", "color": WRONG}
        yield place | {"type": "rect", "x1": bar.refused, "fillcolor": fade(WRONG, 0.2), "line": edge, "name": "refused"}


def _draw_axis(cut: float, largest: float, reach: float) -> Figure:
    """Ticks before the break, and the largest device at the end; without a break as far as what was refused."""
    if not cut:
        return byte_axis(reach)
    axis = byte_axis(cut)
    axis["range"] = [0, _place_on_axis(largest, cut, largest)]
    axis["tickvals"] = [*axis["tickvals"], axis["range"][1]]
    axis["ticktext"] = [*axis["ticktext"], format_bytes(int(largest))]
    axis["ticklabeloverflow"] = "allow"
    return axis


def _draw_break(label: str, cut: float) -> Figure:
    """Two strokes through a bar, where the axis is broken."""
    place = {"x": cut * (1 + _BEHIND * 0.25), "y": label, "showarrow": False, "font": {"size": 16}, "name": "break"}
    return place | {"text": "<b>//</b>", "hovertext": say("the axis is broken here")}


def _bar_label(bar: MemoryBar) -> str:
    label = f"<b>{plotly_text(str(bar.device))}</b>  {in_use_words(bar)} "
    if below := reserved_words(bar):
        label += f"<br>{below} "
    return label


def _bar_words(bar: MemoryBar) -> str:
    words = f"{bar.device}: {parts_words(bar.parts)}"
    if bar.peak:
        words += ", " + say("peak {size}", size=format_bytes(bar.peak))
    return words


def _draw_part(part: str, bars: tuple[MemoryBar, ...], labels: list[str], cut: float, largest: float) -> Figure:
    drawn, facts = [], []
    for bar in bars:
        size = dict(bar.parts).get(part, 0)
        if part == "free":
            drawn.append(_place_on_axis(bar.used + size, cut, largest) - bar.used)
        else:
            drawn.append(size)
        share = f"{100 * size / max(bar.total, 1):.1f} %"
        facts.append([plotly_text(str(bar.device)), format_bytes(size), share])
    return {
        "type": "bar",
        "orientation": "h",
        "name": part_name(part),
        "x": drawn,
        "y": labels,
        "marker": paint_part(part),
        "customdata": facts,
        "hovertemplate": f"%{{customdata[0]}} {part_name(part)}<br>%{{customdata[1]}}  %{{customdata[2]}}<extra></extra>",
        "meta": part,
    }


def _draw_peaks(labels: tuple[str, ...], peaks: tuple[int, ...]) -> Figure:
    marker = {"symbol": "line-ns", "size": 18, "line": {"width": 2.5, "color": INK}}
    hover: Figure = {"customdata": list(map(format_bytes, peaks))}
    hover["hovertemplate"] = say("peak {size}", size="%{customdata}") + "<extra></extra>"
    return _draw_marks(say("peak"), "peak", list(peaks), list(labels), marker) | hover


_GAP = 26
_MOST_BANDS = 12


class _Plot(NamedTuple):
    """The plot of one device: the number of its axes, "" for the first, and the first and last event of all plots."""

    axis: str
    first: int
    last: int

    @property
    def axes(self) -> Figure:
        """The axes that a mark belongs to."""
        return {"xaxis": f"x{self.axis}", "yaxis": f"y{self.axis}"}


def memory_steps_figure(series: tuple[MemorySeries, ...]) -> Figure:
    """One small plot for each device, all to one scale: what its bytes are for, along the trace."""
    row = 150 if len(series) <= 3 else 90
    first, last = min(each.positions[0] for each in series), max(each.positions[-1] for each in series)
    last += 1 + (last - first) // 50
    layout = base_layout(24 + (row + _GAP) * len(series), {"l": 8, "r": 12, "t": 20, "b": 30})
    layout["grid"] = {"rows": len(series), "columns": 1, "pattern": "independent", "ygap": _GAP / (row + _GAP)}
    layout |= {"showlegend": False, "hovermode": "x", "shapes": []}
    data: list[Figure] = []
    top, has_line = max(map(_find_top, series)), any(map(_is_near, series))
    shown = set[str]()
    for at, each in enumerate(series):
        plot = _Plot(str(at + 1) if at else "", first, last)
        shown.update(dict(each.parts))
        data += _draw_series(each, plot)
        layout |= _plot_axes(each, plot, top)
        layout["shapes"] += [*_draw_phases(each, plot), *_draw_refused(each, plot)]
        if has_line:
            layout["shapes"] += _draw_capacity(each, plot)
    layout[f"xaxis{plot.axis}"]["title"] = {"text": say("order of events"), "font": {"size": 11}}
    legend = legend_entries([role for role in ROLES if role in shown])
    return make_figure(data, layout, "; ".join(map(peak_words, series))) | {"legend": [*legend, [say("peak"), INK]]}


def _draw_series(series: MemorySeries, plot: _Plot) -> Iterator[Figure]:
    steps = plot.axes | {"x": [*series.positions, plot.last], "line": {"shape": "hv"}}
    for role, sizes in series.parts:
        yield _draw_area(role, sizes, steps)
    yield _draw_outline(series, steps)
    yield plot.axes | _draw_peak(series)
    if series.curve.refused:
        yield plot.axes | _draw_refusals(series)


def _draw_marks(name: str, meta: str, x: list[int], y: list[Any], marker: Figure) -> Figure:
    return {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "marker": marker, "meta": meta}


def _draw_area(role: str, sizes: tuple[int, ...], steps: Figure) -> Figure:
    return steps | {
        "type": "scatter",
        "mode": "none",
        "name": part_name(role),
        "stackgroup": steps["yaxis"],
        "y": [*sizes, sizes[-1]],
        "fillcolor": CATEGORY_HUES[role],
        "hoverinfo": "skip",
        "meta": role,
    }


def _draw_outline(series: MemorySeries, steps: Figure) -> Figure:
    points = [*series.curve.points, series.curve.points[-1]]
    return steps | {
        "type": "scatter",
        "mode": "lines",
        "name": plotly_text(str(series.curve.device)),
        "y": [point.allocated for point in points],
        "line": {"shape": "hv", "width": 1, "color": "rgba(128,128,128,0.8)"},
        "customdata": [[_hover_words(series, point), point.module] for point in points],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "meta": "allocated",
    }


def _hover_words(series: MemorySeries, point: MemoryPoint) -> str:
    where = row_words((code_word(point.phase), plotly_text(module_words(point.module)), plotly_text(site_words(point.site))))
    words = f"<b>{plotly_text(str(series.curve.device))}  {format_bytes(point.allocated)}</b><br>{where}"
    for part in point_parts(point):
        words += f"<br>{parts_words([part])}"
    return words


def _draw_peak(series: MemorySeries) -> Figure:
    at = series.positions[series.curve.points.index(series.peak)]
    marker = {"symbol": "triangle-down", "size": 10, "color": INK, "line": {"width": 1, "color": "#fff"}}
    marks = _draw_marks(say("peak"), "peak", [at], [series.peak.allocated], marker)
    return marks | {"cliponaxis": False, "hoverinfo": "skip"}


def _draw_refusals(series: MemorySeries) -> Figure:
    refused = series.curve.refused[0]
    marker = {"symbol": "x", "size": 10, "color": WRONG, "line": {"width": 1, "color": "#fff"}}
    return _draw_marks(say("did not fit"), "refused", [refused.number], [refused_bytes(series.curve)], marker) | {
        "cliponaxis": False,
        "customdata": [[plotly_text(refusal_words(series.curve, refused)), refused.module]],
        "hovertemplate": "%{customdata[0]}<extra></extra>",
    }


def _plot_axes(series: MemorySeries, plot: _Plot, top: float) -> Figure:
    title = {
        "text": f"<b>{plotly_text(str(series.curve.device))}</b>",
        "font": {"size": 12, "color": device_hue(series.curve.device)},
    }
    order = {"showticklabels": False, "showgrid": False, "zeroline": False, "fixedrange": True}
    return {
        f"xaxis{plot.axis}": order | {"range": [plot.first, plot.last]},
        f"yaxis{plot.axis}": byte_axis(top) | {"automargin": True, "title": title},
    }


def _find_top(series: MemorySeries) -> float:
    """The capacity where it is near, and room for the mark of the peak."""
    reach = max(series.peak.allocated, refused_bytes(series.curve), 1) * 1.12
    if _is_near(series):
        return max(reach, series.curve.total * 1.05)
    return reach


def _is_near(series: MemorySeries) -> bool:
    return bool(series.curve.total) and (bool(series.curve.refused) or series.peak.allocated > 0.5 * series.curve.total)


def _draw_capacity(series: MemorySeries, plot: _Plot) -> Iterator[Figure]:
    total = series.curve.total
    if total:
        place = {"xref": f"x{plot.axis} domain", "x0": 0, "x1": 1, "yref": f"y{plot.axis}", "y0": total, "y1": total}
        yield place | {"type": "line", "line": {"width": 2, "color": INK}, "name": "capacity"}


def _draw_refused(series: MemorySeries, plot: _Plot) -> Iterator[Figure]:
    """What did not fit, as large as it was asked for, on what was there already."""
    for each in series.curve.refused[:1]:
        box = {"type": "rect", "xref": f"x{plot.axis}", "yref": f"y{plot.axis}", "x0": each.number, "x1": plot.last}
        box |= {"y0": each.allocated, "y1": each.allocated + each.bytes, "name": "refused"}
        yield box | {"fillcolor": fade(WRONG, 0.16), "line": {"width": 1, "dash": "dot", "color": WRONG}}


def _draw_phases(series: MemorySeries, plot: _Plot) -> Iterator[Figure]:
    """A thin line where a phase begins, with its name; none in a long loop, where they would be a grid."""
    if len(series.phases) > _MOST_BANDS:
        return
    line = {"type": "line", "xref": f"x{plot.axis}", "yref": f"y{plot.axis} domain", "y0": 0, "y1": 1, "layer": "below"}
    line["line"] = {"width": 1, "dash": "dot", "color": GRID}
    label = {"textposition": "end", "textangle": 0, "xanchor": "left", "yanchor": "bottom", "font": {"size": 11}}
    ends = [*(start for _, start in series.phases[1:]), plot.last]
    for (phase, start), end in zip(series.phases, ends, strict=True):
        name = ""
        if end - start > 0.08 * (plot.last - plot.first):
            name = code_word(phase)
        yield line | {"x0": start, "x1": start, "label": label | {"text": name}}
