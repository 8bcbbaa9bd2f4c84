"""Memory now: one stacked bar for each device."""

from __future__ import annotations

from devwidget.report.figures.frame import Figure, base_layout, byte_axis, figure, label_axis, legend, paint, part_name
from devwidget.report.style.safe_text import plotly_text
from devwidget.report.style.units import format_bytes
from devwidget.views.memory import USED, MemoryBar


def memory_figure(bars: tuple[MemoryBar, ...]) -> Figure:
    """One stacked bar for each device, with the peak of the last trace as a line."""
    reach = _reach(bars)
    labels = [_bar_label(bar) for bar in bars]
    traces = [_category(category, bars, labels) for category in (*USED, "free")]
    data = [trace for trace in traces if trace is not None]
    peaks = [(label, bar) for label, bar in zip(labels, bars, strict=True) if bar.peak]
    if peaks:
        data.append(_peaks(peaks))
    height = 34 + 30 * len(bars)
    layout = base_layout(height, {"l": 8, "r": 12, "t": 4, "b": 30})
    layout |= {"barmode": "stack", "bargap": 0.32, "xaxis": byte_axis(reach), "yaxis": label_axis()}
    layout["showlegend"] = False
    words = "; ".join(_bar_words(bar) for bar in bars)
    return figure(data, layout, words) | {"legend": legend([trace["meta"] for trace in data])}


def _reach(bars: tuple[MemoryBar, ...]) -> float:
    """The end of the axis: the largest device, or somewhat more than is in use where that would be a sliver."""
    largest = max((bar.total for bar in bars), default=0)
    used = max((max(bar.used, bar.peak) for bar in bars), default=0)
    return max(min(largest, used * 1.25 if used < 0.3 * largest else largest), 1.0)


def _bar_label(bar: MemoryBar) -> str:
    total = f" of {format_bytes(bar.total)}" if bar.known_total else ""
    return f"<b>{plotly_text(str(bar.device))}</b>  {format_bytes(bar.used)}{total} "


def _bar_words(bar: MemoryBar) -> str:
    parts = ", ".join(f"{category} {format_bytes(size)}" for category, size in bar.parts)
    return f"{bar.device}: {parts}" + (f", peak {format_bytes(bar.peak)}" if bar.peak else "")


def _category(category: str, bars: tuple[MemoryBar, ...], labels: list[str]) -> Figure | None:
    sizes = [dict(bar.parts).get(category, 0) for bar in bars]
    if not any(sizes):
        return None
    return {
        "type": "bar",
        "orientation": "h",
        "name": part_name(category),
        "x": sizes,
        "y": labels,
        "marker": paint(category),
        "customdata": [
            [plotly_text(str(bar.device)), format_bytes(size), f"{100 * size / bar.total:.1f} %" if bar.total else ""]
            for bar, size in zip(bars, sizes, strict=True)
        ],
        "hovertemplate": f"%{{customdata[0]}} {part_name(category)}<br>%{{customdata[1]}}  %{{customdata[2]}}<extra></extra>",
        "meta": category,
    }


def _peaks(peaks: list[tuple[str, MemoryBar]]) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "peak",
        "x": [bar.peak for _, bar in peaks],
        "y": [label for label, _ in peaks],
        "marker": {"symbol": "line-ns", "size": 18, "line": {"width": 2.5, "color": "#d33"}},
        "customdata": [format_bytes(bar.peak) for _, bar in peaks],
        "hovertemplate": "peak %{customdata}<extra></extra>",
        "meta": "peak",
    }
