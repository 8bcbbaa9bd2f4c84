"""DataParallel as it ran: batch and model on the left, replicas in the middle, outputs and gradients on the right."""

from __future__ import annotations

from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.parallel import Replica
from devwidget.records.schema.message import Message
from devwidget.report.figures.frame import Figure, base_layout, make_figure
from devwidget.report.style.palette import device_hue, fade
from devwidget.report.style.safe_text import plotly_text
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import row_words
from devwidget.report.text.parallel_words import mark_of
from devwidget.views.parallel import Flow, FlowBox, ParallelCall, Ribbon, Span, Step, draw_flow

_STEPS: dict[Step, Message] = {
    "scatter": Message("batch in"),
    "replicate": Message("parameters in"),
    "gather": Message("outputs"),
    "reduce": Message("gradients"),
}
CURVE = [(t / 12, (t / 12) ** 2 * (3 - t / 6)) for t in range(13)]
_THINNEST = 1.6
"""Pixels; a copy of few bytes beside one of many is still seen."""


def parallel_figure(call: ParallelCall) -> Figure:
    """The drawing of one call; the mark of each part says where a click leads."""
    drawn, height = draw_flow(call), max(270, 64 * len(call.replicas) + 12)
    data = [_draw_ribbon(call, each, _THINNEST / height) for each in drawn.ribbons] + [
        _draw_box(call, each) for each in drawn.boxes
    ]
    hidden = {"visible": False, "fixedrange": True}
    layout = base_layout(height, {"l": 4, "r": 4, "t": 4, "b": 4}) | {
        "shapes": [_draw_cut(*each) for each in drawn.cuts],
        "annotations": [_draw_note(each, _box_words(call, each)) for each in drawn.boxes] + _draw_shares(call, drawn),
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": hidden | {"range": [-0.005, 1.005]},
        "yaxis": hidden | {"range": [1.01, -0.01]},
    }
    words = row_words((f"{replica.device} {count_words(replica.samples, 'sample')}" for replica in call.replicas), "; ")
    cut = say("batch of {samples} cut: {parts}", samples=call.samples, parts=words)
    return make_figure(
        data, layout, row_words((cut, say("gathered on {device}", device=call.gathered_on) if call.gathered_on else ""), "; ")
    )


def _box_words(call: ParallelCall, box: FlowBox) -> str:
    if box.what == "replica":
        return _replica_words(call.find_replica(box.number), call)
    heads = {
        "batch": (say("batch"), count_words(call.samples, "sample"), sum(each.input_bytes for each in call.replicas)),
        "model": (call.call.class_name, say("copied at each call"), max(each.parameter_bytes for each in call.replicas)),
        "outputs": (*_gathered_words(call), call.gathered_bytes),
        "gradients": (say("gradients"), say("added up"), max(each.gradient_bytes for each in call.replicas)),
    }
    name, what, size = heads[box.what]
    return "<br>".join(
        part for part in (f"<b>{plotly_text(name)}</b>", plotly_text(str(box.device)), format_bytes(size), what) if part
    )


def _gathered_words(call: ParallelCall) -> tuple[str, str]:
    if call.gathered_on is None:
        return say("outputs"), say("gather failed")
    return say("gathered"), say("then the loss") if call.call.backward else ""


def _replica_words(replica: Replica, call: ParallelCall) -> str:
    peak = call.peak_on(replica.device)
    failed = "  " + say("failed") if replica.failed else ""
    took = f"  {format_seconds(replica.seconds)}" if replica.seconds else ""
    lines = [
        f"<b>{plotly_text(str(replica.device))}</b>  {count_words(replica.samples, 'sample')}{failed}",
        say("out {size}", size=format_bytes(replica.output_bytes)) + took,
        say("peak {size}", size=format_bytes(peak)) if peak else "",
    ]
    return "<br>".join(filter(None, lines))


def _draw_shares(call: ParallelCall, drawn: Flow) -> list[Figure]:
    """How many samples each part of the batch has, beside the edge of its box."""
    ribbons = [each for each in drawn.ribbons if each.step == "scatter"]
    style: Figure = {"showarrow": False, "xanchor": "right", "font": {"size": 10.5}}
    return [
        {"x": each.x[0] - 0.006, "y": sum(each.start) / 2, "text": str(replica.samples), **style}
        for each, replica in zip(ribbons, call.replicas, strict=True)
    ]


def _draw_ribbon(call: ParallelCall, ribbon: Ribbon, thinnest: float) -> Figure:
    (left, right), start, end = ribbon.x, at_least(ribbon.start, thinnest), at_least(ribbon.end, thinnest)
    along = [left + (right - left) * t for t, _ in CURVE]
    upper, lower = ([a + (b - a) * rise for _, rise in CURVE] for a, b in zip(start, end, strict=True))
    came = f"{ribbon.source} → {ribbon.target}" if ribbon.crosses else say("stays on {device}", device=ribbon.target)
    words = f"{said(_STEPS[ribbon.step])}: {format_bytes(ribbon.bytes)}<br>{plotly_text(came)}"
    hue = device_hue(call.find_replica(ribbon.number).device)
    shape = draw_area([*along, *reversed(along)], [*upper, *reversed(lower)], hue, 0.5 if ribbon.crosses else 0.18, words)
    return shape | {"meta": {"mark": mark_of(ribbon.step, ribbon.number), "step": ribbon.step, "bytes": ribbon.bytes}}


def at_least(span: Span, thickness: float) -> Span:
    """A span around the same middle, of at least this thickness."""
    middle, half = sum(span) / 2, max(span[1] - span[0], thickness) / 2
    return middle - half, middle + half


def _draw_box(call: ParallelCall, box: FlowBox) -> Figure:
    (left, right), (top, bottom) = box.x, box.y
    words = _box_words(call, box)
    shape = draw_area([left, right, right, left, left], [top, top, bottom, bottom, top], device_hue(box.device), 0.32, words)
    shape["line"] = {"width": 1.5, "color": device_hue(box.device)}
    return shape | {"meta": {"mark": mark_of(box.what, box.number), "box": box.what}}


def draw_area(x: list[float], y: list[float], hue: str, opacity: float, words: str) -> Figure:
    """A filled outline that can be clicked."""
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "x": x, "y": y, "line": {"width": 0},
        "fillcolor": fade(hue, opacity), "hoveron": "fills", "text": words, "hoverinfo": "text",
    }  # fmt: skip


def _draw_cut(x: Span, y: float) -> Figure:
    line = {"width": 1, "color": "rgba(128,128,128,0.7)", "dash": "dot"}
    return {"type": "line", "x0": x[0], "x1": x[1], "y0": y, "y1": y, "line": line, "layer": "above"}


def _draw_note(box: FlowBox, text: str) -> dict[str, Any]:
    x, y = sum(box.x) / 2, sum(box.y) / 2
    return {"x": x, "y": y, "text": text, "showarrow": False, "align": "center", "font": {"size": 11.5}, "captureevents": False}
