"""The panel's content as a file to keep: HTML, JSON, CSV, text, or a picture of the worst finding to share."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from devwidget.language.speaking import say
from devwidget.records.finding import Finding
from devwidget.records.loading.json_io import dumps
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.html import panel_page, panel_text
from devwidget.report.style.palette import device_hue, schemes_of
from devwidget.report.style.safe_text import Markup, file_name, html_element, spreadsheet_cell
from devwidget.report.style.words import code_word, first_line, module_words, row_words, site_words, translate_finding
from devwidget.report.text.finding_text import changed_lines
from devwidget.report.text.trace_text import summary_words
from devwidget.views.timeline import Timeline, make_timeline

_WIDTH, _MARGIN, _LINE = 960, 32, 22
_LETTERS = 92
"""Letters of the code's font in a line."""
_LANE, _MOST_LINES = 44, 4
_HUES = {"error": "#b3201a", "warning": "#8a5a00", "info": "#41586f"}
_INK, _SOFT, _GOOD = "#1f2328", "#57606a", "#1b6e3c"


def share_card(snapshot: Snapshot, trace: Trace | None) -> str:
    """One SVG, light on every page; without a trace it says what the model is and no more."""
    trace = trace if trace is not None else Trace()
    name = snapshot.modules[0].class_name if snapshot.modules else say("a step")
    lines = list(_finding_lines(trace.findings[0])) if trace.findings else [("", _GOOD, _clean_words(trace))]
    lines = [("bold", _INK, name), ("", _SOFT, summary_words(trace)), ("", _INK, ""), *lines]
    texts = [_draw_text(at, *line) for at, line in enumerate(lines)]
    top = _MARGIN + _LINE * len(lines) + 12
    lanes = make_timeline(trace)
    height = top + _LANE * len(lanes.lanes) + _MARGIN
    paper = html_element("rect", width=str(_WIDTH), height=str(height), rx="10", fill="#ffffff", stroke="#d8dee4")
    size = {"width": str(_WIDTH), "height": str(height), "viewBox": f"0 0 {_WIDTH} {height}"}
    return html_element("svg", paper, *texts, *_draw_lanes(lanes, top), xmlns="http://www.w3.org/2000/svg", **size) + "\n"


def _clean_words(trace: Trace) -> str:
    if trace.error:
        return say("ended by {error}", error=trace.error.splitlines()[0])
    return say("nothing found, {count} checks", count=len(trace.checked)) if trace.checked else say("nothing was checked")


def _finding_lines(finding: Finding) -> Iterator[tuple[str, str, str]]:
    """`(font, colour, text)` of each line."""
    finding = translate_finding(finding)
    for part in _wrap_text(f"{code_word(finding.severity)}[{finding.kind}]  {finding.headline}"):
        yield "bold", _HUES[finding.severity], part
    yield "", _SOFT, row_words((module_words(finding.module), site_words(finding.fault)))
    for part in _wrap_text(first_line(finding.fault)):
        yield "code", _INK, part
    fix = next(iter(finding.fixes), None)
    if fix is not None:
        yield "", _INK, ""
        yield "", _SOFT, say("fix: {fix}", fix=fix.summary)
        rows = [row for edit in fix.edits for row in changed_lines(edit)] or fix.code.splitlines()
        for row in rows[: 2 * _MOST_LINES]:
            yield "code", _HUES["error"] if fix.edits and row.startswith("-") else _GOOD, row[:_LETTERS]


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, _LETTERS)[:_MOST_LINES]


def _draw_text(at: int, font: str, colour: str, text: str) -> Markup:
    family = "ui-monospace, monospace" if font == "code" else "system-ui, sans-serif"
    style = {"font-family": family, "font-size": "15", "font-weight": "600" if font == "bold" else "400"}
    place = {"x": str(_MARGIN), "y": str(_MARGIN + _LINE * at + 6), "fill": colour, "xml:space": "preserve"}
    return html_element("text", text, **place, **style)


def _draw_lanes(lanes: Timeline, top: float) -> Iterator[Markup]:
    """The lanes: modules as boxes, hops as lines, faults as dots."""
    ends = [*(box.stop for box in lanes.boxes), *(arrow.at for arrow in lanes.arrows), *(cross.at for cross in lanes.crosses)]
    left, scale = 110.0, (_WIDTH - 110 - _MARGIN) / max([1.0, *ends])
    middle = {lane: top + _LANE * at + _LANE / 2 for at, lane in enumerate(lanes.lanes)}
    for lane, y in middle.items():
        font = {"font-size": "14", "font-weight": "600", "font-family": "system-ui, sans-serif"}
        yield html_element("text", str(lane), x=str(_MARGIN), y=f"{y + 5:.1f}", fill=schemes_of(device_hue(lane))[0], **font)
    for box in lanes.boxes:
        if box.lane is not None and box.level < 3:
            place = {"x": f"{left + box.start * scale:.1f}", "y": f"{middle[box.lane] - 15 + 10 * box.level:.1f}"}
            size = {"width": f"{max(1.0, (box.stop - box.start) * scale):.1f}", "height": "9", "rx": "1"}
            yield html_element(
                "rect",
                **place,
                **size,
                fill=schemes_of(device_hue(box.lane))[0],
                **{"fill-opacity": f"{0.35 + 0.15 * box.level:.2f}"},
            )
    for arrow in lanes.arrows[:200]:
        x, hue = f"{left + arrow.at * scale:.1f}", _HUES["error"] if arrow.cause == "healed" else "#5c636d"
        ends_at = {"x1": x, "x2": x, "y1": f"{middle[arrow.source]:.1f}", "y2": f"{middle[arrow.target]:.1f}"}
        yield html_element("line", **ends_at, stroke=hue, **{"stroke-width": "2.5"})
    for cross in lanes.crosses:
        yield html_element(
            "circle", cx=f"{left + cross.at * scale:.1f}", cy=f"{middle[cross.lane]:.1f}", r="5", fill=_HUES["error"]
        )


def export_panel(snapshot: Snapshot | None, trace: Trace | None, form: str) -> dict[str, str]:
    """A file as `name`, `mime` and `text`; `error` for an unknown form or without anything to export."""
    if snapshot is None:
        return {"error": say("there is nothing to export: the model was deleted")}
    if form not in _FORMS:
        return {"error": say("unknown form {form}; known: {forms}", form=repr(form), forms=", ".join(_FORMS))}
    ending, mime, write = _FORMS[form]
    name = snapshot.modules[0].class_name if snapshot.modules else "model"
    return {"name": f"{file_name(name)}-devices.{ending}", "mime": mime, "text": write(snapshot, trace)}


def _csv_text(snapshot: Snapshot, trace: Trace | None) -> str:
    return str(snapshot.to_frame("tensors").map(spreadsheet_cell).to_csv(index=False))


_FORMS: dict[str, tuple[str, str, Callable[[Snapshot, Trace | None], str]]] = {
    "html": ("html", "text/html", panel_page),
    "json": ("json", "application/json", lambda snapshot, trace: dumps(snapshot)),
    "trace": ("trace.json", "application/json", lambda snapshot, trace: dumps(trace if trace is not None else Trace())),
    "csv": ("csv", "text/csv", _csv_text),
    "card": ("svg", "image/svg+xml", share_card),
    "text": ("txt", "text/plain", panel_text),
}
