"""The figure of a watched run: times of its steps above, memory of each device below, with marks at findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from devwidget.extras.watch.records.run import StepRows, WatchedMemory, WatchedRun, fold_rows
from devwidget.extras.watch.views import (
    MOST_COLUMNS,
    Composition,
    Mark,
    find_highest,
    list_compositions,
    list_marks,
    mean_parts,
)
from devwidget.extras.watch.words.run import PART_NAMES, verdict_words
from devwidget.language.speaking import said, say
from devwidget.records.finding import SEVERITIES
from devwidget.records.memory import ROLES
from devwidget.report.figures.frame import GRID, Figure, base_layout, byte_axis, make_figure, round_step
from devwidget.report.style.palette import CATEGORY_HUES, SOFT_INK, WARNING, WRONG, device_hue, fade
from devwidget.report.style.safe_text import plotly_text
from devwidget.report.style.units import format_bytes, format_seconds
from devwidget.report.style.words import part_name
from devwidget.views.memory import point_parts

_HUES = {
    "data": CATEGORY_HUES["inputs"],
    "forward": CATEGORY_HUES["activations"],
    "loss": CATEGORY_HUES["outputs"],
    "backward": CATEGORY_HUES["gradients"],
    "optimizer": CATEGORY_HUES["optimizer"],
    "evaluation": CATEGORY_HUES["parameters"],
    "other": CATEGORY_HUES["other"],
}
"""Hue of each part: that of the related category of memory."""
_SEVERITY_HUES = dict(zip(SEVERITIES, (WRONG, WARNING, SOFT_INK), strict=True))
_TIMES, _MEMORY, _GAP, _MARGIN = 170, 110, 24, 58
"""Pixels: height of the plot of times, of each device, between them, and around all."""
_WIDEST_BARS = 60
"""Number of bars that fill the figure, which sets the width of a bar."""


def run_figure(run: WatchedRun) -> Figure | None:
    """Draw times above and memory below, on one axis of steps; None before the first step."""
    rows = fold_rows(run.steps, MOST_COLUMNS)
    if not len(rows):
        return None
    height = _TIMES + len(rows.memory) * (_MEMORY + _GAP)
    layout = base_layout(height + _MARGIN, {"l": 8, "r": 12, "t": 18, "b": 40})
    layout |= {"showlegend": False, "hovermode": "x", "barmode": "stack"}
    layout["xaxis"] = _step_axis(rows) | {"anchor": f"y{len(rows.memory) + 1 if rows.memory else ''}"}
    layout["yaxis"] = _time_axis(find_highest(rows), _TIMES / height)
    data = [*_draw_times(rows), *_draw_recorded(run, rows), *_draw_marks(list_marks(run), rows)]
    compositions = list_compositions(run)
    for at, memory in enumerate(rows.memory):
        top = 1 - (_TIMES + at * (_MEMORY + _GAP) + _GAP) / height
        mine = [each for each in compositions if each.device == memory.device]
        data += _draw_memory(rows, memory, mine, f"y{at + 2}")
        layout[f"yaxis{at + 2}"] = _memory_axis(memory, mine, (max(0.0, top - _MEMORY / height), top))
    shown = {role for each in compositions for role, _ in point_parts(each.peak)}
    legend = [[f"{say('time')}:", ""], *([said(PART_NAMES[part]), _HUES[part]] for part in mean_parts(rows))]
    if shown:
        legend += [[f"{say('memory')}:", ""], *([part_name(role), CATEGORY_HUES[role]] for role in ROLES if role in shown)]
    return make_figure(data, layout, verdict_words(run)) | {"legend": legend}


def _step_axis(rows: StepRows) -> Figure:
    ends = [rows.first[0] - 0.5, rows.total - 0.5]
    title = {"text": say("steps"), "font": {"size": 11}}
    return {"range": ends, "title": title, "tickfont": {"size": 11}, "showgrid": False, "zeroline": False, "fixedrange": True,
            "tickformat": ",d"}  # fmt: skip


def _time_axis(highest: float, share: float) -> Figure:
    step = round_step(highest / 4) if highest else 1.0
    ticks = [step * at for at in range(1, int(highest / step) + 1)]
    return {
        "domain": [1 - share, 1],
        "range": [0, highest],
        "tickvals": ticks,
        "ticktext": [format_seconds(tick) for tick in ticks],
        "tickfont": {"size": 11},
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
    }


def _memory_axis(memory: WatchedMemory, compositions: Sequence[Composition], domain: tuple[float, float]) -> Figure:
    highest = max([1, *memory.reserved, *(each.peak.allocated for each in compositions)])
    title = {"text": f"<b>{plotly_text(str(memory.device))}</b>", "font": {"size": 12, "color": device_hue(memory.device)}}
    return byte_axis(highest * 1.1) | {"domain": list(domain), "title": title, "automargin": True}


def _along(rows: StepRows, values: Sequence[float]) -> Figure:
    return {"x": [*rows.first, rows.total], "y": [*values, values[-1]], "line": {"shape": "hv", "width": 0}}


def _draw_times(rows: StepRows) -> Iterator[Figure]:
    parts, totals = mean_parts(rows), [0.0] * len(rows)
    for part, means in parts.items():
        area = {"type": "scatter", "mode": "none", "stackgroup": "times", "name": said(PART_NAMES[part]), "meta": part}
        yield area | _along(rows, means) | {"fillcolor": _HUES[part], "hoverinfo": "skip"}
        totals = list(map(sum, zip(totals, means, strict=True)))
    words = [_row_words(rows, at, {part: means[at] for part, means in parts.items()}) for at in range(len(rows))]
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": say("step"),
        "meta": "step",
        "hovertemplate": "%{customdata[0]}<extra></extra>",
    }
    yield line | _along(rows, totals) | {
        "line": {"shape": "hv", "width": 1, "color": "rgba(128,128,128,0.8)"},
        "customdata": [[each] for each in (*words, words[-1])],
    }  # fmt: skip


def _row_words(rows: StepRows, at: int, parts: dict[str, float]) -> str:
    """Return `steps 128 to 135: 8.1 ms`, then the time of each part."""
    first, last = rows.first[at], rows.first[at] + rows.count[at] - 1
    if first == last:
        named = say("step {step}", step=f"{first:,}")
    else:
        named = say("steps {first} to {last}", first=f"{first:,}", last=f"{last:,}")
    largest = sorted(parts.items(), key=lambda part: -part[1])
    told = "".join(f"<br>{said(PART_NAMES[part])} {format_seconds(mean)}" for part, mean in largest if mean)
    return f"<b>{named}  {format_seconds(sum(parts.values()))}</b>{told}"


def _draw_recorded(run: WatchedRun, rows: StepRows) -> Iterator[Figure]:
    if run.recorded_steps:
        numbers, told = [], []
        for each in run.recorded_steps:
            numbers.append(each.number)
            words = say("step {step} was recorded: {reason}", step=each.number, reason=said(each.reason))
            told.append(_point(plotly_text(words), each.number))
        marker = {"symbol": "circle", "size": 9, "color": SOFT_INK, "line": {"width": 1, "color": "#fff"}}
        yield _draw_points("recorded", say("recorded step"), numbers, 0.0, told, marker)


def _draw_marks(marks: Sequence[Mark], rows: StepRows) -> Iterator[Figure]:
    if marks:
        steps, hues, told = [], [], []
        for mark in marks:
            steps.append(mark.step)
            hues.append(_SEVERITY_HUES[mark.finding.severity])
            words = f"<b>{plotly_text(mark.finding.kind)}</b><br>{plotly_text(said(mark.finding.headline))}"
            told.append(_point(words, mark.recorded))
        marker = {"symbol": "triangle-down", "size": 12, "color": hues, "line": {"width": 1, "color": "#fff"}}
        yield _draw_points("found", say("found"), steps, find_highest(rows), told, marker)


def _point(words: str, recorded: int | None) -> list[object]:
    """Return the text of a point, and the recorded step that a click shows."""
    return [words, None, {"recorded": recorded}]


def _draw_points(meta: str, name: str, steps: Sequence[int], height: float, told: Sequence[object], marker: Figure) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(steps),
        "y": [height] * len(steps),
        "marker": marker,
        "cliponaxis": False,
        "customdata": list(told),
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "meta": meta,
    }


def _draw_memory(rows: StepRows, memory: WatchedMemory, compositions: Sequence[Composition], axis: str) -> Iterator[Figure]:
    hue = device_hue(memory.device)
    line: Figure = {"type": "scatter", "mode": "lines", "yaxis": axis, "hovertemplate": "%{customdata}<extra></extra>"}
    for part, look in (("reserved", {"dash": "dot", "color": SOFT_INK}), ("allocated", {"color": hue})):
        sizes = getattr(memory, part)
        words = [f"{memory.device}  {said(part)} {format_bytes(size)}" for size in (*sizes, sizes[-1])]
        drawn = line | _along(rows, sizes) | {"name": said(part), "meta": f"{memory.device} {part}", "customdata": words}
        drawn["line"] = {"shape": "hv", "width": 1.5, **look}
        yield drawn | ({"fill": "tozeroy", "fillcolor": fade(hue, 0.12)} if part == "allocated" else {})
    steps = [each.step for each in compositions]
    width = max(1.0, rows.total / _WIDEST_BARS)
    for role in ROLES:
        sizes = [getattr(each.peak, role) for each in compositions]
        if any(sizes):
            yield _draw_role(role, steps, sizes, axis, width)


def _draw_role(role: str, steps: Sequence[int], sizes: Sequence[int], axis: str, width: float) -> Figure:
    name = part_name(role)
    told = []
    for step, size in zip(steps, sizes, strict=True):
        told.append(_point(say("peak of step {step}: {part} {size}", step=step, part=name, size=format_bytes(size)), step))
    return {
        "type": "bar",
        "yaxis": axis,
        "name": name,
        "x": list(steps),
        "y": list(sizes),
        "width": width,
        "marker": {"color": CATEGORY_HUES[role], "line": {"width": 0}},
        "customdata": told,
        "hovertemplate": "%{customdata[0]}<extra></extra>",
        "meta": role,
    }
