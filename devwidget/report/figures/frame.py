"""What all figures share: the layout, axes of bytes, and the paint of the parts of memory."""

from __future__ import annotations

from typing import Any

from devwidget.report.style.palette import CATEGORY_HUES, CATEGORY_PATTERNS, INK
from devwidget.report.style.words import part_name

Figure = dict[str, Any]
GRID = "rgba(128,128,128,0.22)"
_UNITS = {1024**4: "TiB", 1024**3: "GiB", 1024**2: "MiB", 1024: "KiB", 1: "B"}


def paint_part(category: str) -> Figure:
    """Colour and pattern of a part of memory; patterns carry it where colours cannot be told apart."""
    paint: Figure = {"color": CATEGORY_HUES[category], "line": {"width": 0}}
    if category == "free":
        paint["line"] = {"width": 1, "color": "rgba(128,128,128,0.35)"}
    if category in CATEGORY_PATTERNS:
        pattern = {"shape": CATEGORY_PATTERNS[category], "fgcolor": "rgba(255,255,255,0.45)", "size": 6, "solidity": 0.3}
        paint["pattern"] = pattern | {"fillmode": "overlay"}
    return paint


def legend_entries(parts: list[str]) -> list[list[str]]:
    """`[name, colour]` of each part; the page writes them in a line that wraps, which plotly's legend does not."""
    return [[part_name(part), CATEGORY_HUES.get(part, INK)] for part in parts]


def base_layout(height: int, margin: dict[str, int]) -> Figure:
    """Size, margins, a transparent paper."""
    return {
        "height": height,
        "margin": margin,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 12},
        "hoverlabel": {"font": {"size": 12}, "align": "left"},
        "dragmode": False,
    }


def byte_axis(reach: float) -> Figure:
    """Ticks at round numbers of the fitting unit."""
    fitting = [unit for unit in _UNITS if unit <= max(reach, 1)]
    unit = max(fitting)
    name = _UNITS[unit]
    step = round_step(reach / unit / 5) * unit
    ticks = [step * at for at in range(int(reach / step) + 1)]
    return {
        "range": [0, reach],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": ["0", *(f"{tick / unit:g} {name}" for tick in ticks[1:])],
        "tickfont": {"size": 11},
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
    }


def round_step(rough: float) -> float:
    """The next step of 1, 2, 5, 10 and so on."""
    magnitude = 1.0
    while magnitude * 10 <= rough:
        magnitude *= 10
    while magnitude > rough:
        magnitude /= 10
    for factor in (1, 2, 5):
        if factor * magnitude >= rough * 0.999:
            return factor * magnitude
    return 10 * magnitude


def label_axis() -> Figure:
    """A vertical axis of names, the first one on top."""
    axis = {"automargin": True, "showgrid": False, "zeroline": False, "fixedrange": True}
    return axis | {"autorange": "reversed", "tickfont": {"size": 12}}


def make_figure(data: list[Figure], layout: Figure, words: str) -> Figure:
    """A figure with the words that a screen reader says for it."""
    return {"data": data, "layout": layout, "words": words}
