"""Memory now: one stacked bar for each device."""

from __future__ import annotations

from devwidget.language.speaking import say
from devwidget.report.figures.frame import Figure, base_layout, byte_axis, differences, figure, label_axis, legend, paint
from devwidget.report.style.memory_names import part_name
from devwidget.report.style.safe_text import plotly_text
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import row_words
from devwidget.report.text.snapshot_text import in_use_words, reserved_words
from devwidget.views.memory import BAR_PARTS, MemoryBar

_SLIVER = 0.3
"""Share of the largest device below which bars to its full size say too little."""
_BEHIND = 0.22
"""Room behind the break, in parts of the room before it."""


def memory_figure(bars: tuple[MemoryBar, ...]) -> Figure:
    """One stacked bar for each device, with the peak of the last trace as a line.

    Every bar goes to the end of its device. Where all would be slivers, the axis is broken behind what is in use; the
    unbroken one is under `variants`.
    """
    cut = _cut(bars)
    if not cut:
        return _drawn(bars, 0.0)
    broken = _drawn(bars, cut)
    return broken | {"variants": {"whole": differences(broken, _drawn(bars, 0.0))}}


def _cut(bars: tuple[MemoryBar, ...]) -> float:
    """Where the axis is broken: somewhat behind all that is in use, where that is a sliver; 0 for nowhere."""
    largest = max((bar.total for bar in bars), default=0)
    used = max((max(bar.used, bar.peak) for bar in bars), default=0)
    return used * 1.25 if used and used < _SLIVER * largest else 0.0


def _place(size: float, cut: float, largest: float) -> float:
    """Where a number of bytes is on the axis: behind a break, all that is left takes little room."""
    if not cut or size <= cut:
        return size
    return cut * (1 + _BEHIND * (0.5 + 0.5 * (size - cut) / (largest - cut)))


def _drawn(bars: tuple[MemoryBar, ...], cut: float) -> Figure:
    largest = max((float(bar.total) for bar in bars), default=0.0) or 1.0
    labels = [_bar_label(bar) for bar in bars]
    traces = [_part(part, bars, labels, cut, largest) for part in BAR_PARTS]
    data = [trace for trace in traces if trace is not None]
    peaks = [(label, bar) for label, bar in zip(labels, bars, strict=True) if bar.peak]
    if peaks:
        data.append(_peaks(peaks))
    layout = base_layout(34 + 36 * len(bars), {"l": 8, "r": 34 if cut else 12, "t": 4, "b": 30})
    layout |= {"barmode": "stack", "bargap": 0.32, "xaxis": _axis(cut, largest), "yaxis": label_axis()}
    layout |= {"showlegend": False, "annotations": [_break(label, cut) for label in labels] if cut else []}
    words = row_words(map(_bar_words, bars), "; ")
    return figure(data, layout, words) | {"legend": legend([trace["meta"] for trace in data])}


def _axis(cut: float, largest: float) -> Figure:
    """Ticks before the break, and the largest device at the end."""
    if not cut:
        return byte_axis(largest)
    axis = byte_axis(cut)
    axis["range"] = [0, _place(largest, cut, largest)]
    axis["tickvals"] = [*axis["tickvals"], axis["range"][1]]
    axis["ticktext"] = [*axis["ticktext"], format_bytes(int(largest))]
    axis["ticklabeloverflow"] = "allow"
    return axis


def _break(label: str, cut: float) -> Figure:
    """Two strokes through a bar, where the axis is broken."""
    place = {"x": cut * (1 + _BEHIND * 0.25), "y": label, "showarrow": False, "font": {"size": 16}, "name": "break"}
    return place | {"text": "<b>//</b>", "hovertext": say("the axis is broken here")}


def _bar_label(bar: MemoryBar) -> str:
    below = reserved_words(bar)
    return f"<b>{plotly_text(str(bar.device))}</b>  {in_use_words(bar)} " + (f"<br>{below} " if below else "")


def _bar_words(bar: MemoryBar) -> str:
    parts = row_words(f"{part_name(part)} {format_bytes(size)}" for part, size in bar.parts)
    return f"{bar.device}: {parts}" + (", " + say("peak {size}", size=format_bytes(bar.peak)) if bar.peak else "")


def _part(part: str, bars: tuple[MemoryBar, ...], labels: list[str], cut: float, largest: float) -> Figure | None:
    sizes = [dict(bar.parts).get(part, 0) for bar in bars]
    if not any(sizes):
        return None
    drawn = [_place(bar.used + size, cut, largest) - bar.used if part == "free" else size
             for bar, size in zip(bars, sizes, strict=True)]  # fmt: skip
    return {
        "type": "bar",
        "orientation": "h",
        "name": part_name(part),
        "x": drawn,
        "y": labels,
        "marker": paint(part),
        "customdata": [
            [plotly_text(str(bar.device)), format_bytes(size), f"{100 * size / bar.total:.1f} %" if bar.total else ""]
            for bar, size in zip(bars, sizes, strict=True)
        ],
        "hovertemplate": f"%{{customdata[0]}} {part_name(part)}<br>%{{customdata[1]}}  %{{customdata[2]}}<extra></extra>",
        "meta": part,
    }


def _peaks(peaks: list[tuple[str, MemoryBar]]) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": say("peak"),
        "x": [bar.peak for _, bar in peaks],
        "y": [label for label, _ in peaks],
        "marker": {"symbol": "line-ns", "size": 18, "line": {"width": 2.5, "color": "#d33"}},
        "customdata": [format_bytes(bar.peak) for _, bar in peaks],
        "hovertemplate": say("peak {size}", size="%{customdata}") + "<extra></extra>",
        "meta": "peak",
    }
