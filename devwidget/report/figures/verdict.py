"""The worst finding of a trace as one SVG: what, where, and the lines that cure it; or that nothing was found."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import say
from devwidget.records.finding import Finding
from devwidget.records.trace import Trace
from devwidget.report.figures.shapes import MONO, MONO_FONT, SANS, SANS_FONT, draw_rectangle, draw_text
from devwidget.report.style.palette import GOOD, INK, PAPER, SOFT_INK, WARNING, WRONG
from devwidget.report.style.safe_text import Markup, html_element
from devwidget.report.style.words import cut_line, module_words, row_words, site_words, translate_finding
from devwidget.report.text.finding_text import changed_lines
from devwidget.report.text.trace_text import findings_words

_LINE, _LEFT, _MOST_CODE = 19, 14.0, 6
Line = tuple[str, str, str]
"""Font, colour and text: `bold`, `plain` or `code`."""


def draw_verdict(trace: Trace, width: int = 860) -> Markup:
    """An `<svg>` element of a width in pixels, drawn as `draw_devices` draws: colours are pairs, all words are text."""
    hue, lines = _say_verdict(trace)
    height = 16 + _LINE * len(lines)
    wall = draw_rectangle(0, 0, 3, height, 0, fill=hue)
    frame = draw_rectangle(0.5, 0.5, width - 1, height - 1, 2, fill=PAPER, stroke="rgba(128,128,128,0.45)")
    texts = [_draw_line(at, line, width) for at, line in enumerate(lines)]
    words = " ".join(text for _, _, text in lines[:2])
    look = {
        "role": "img",
        "aria-label": words,
        "font-size": "12",
        "style": f"color-scheme: light dark; font-family: {SANS_FONT}",
    }
    size = {"width": f"{width}", "height": f"{height}", "viewBox": f"0 0 {width} {height}"}
    return html_element("svg", frame, wall, *texts, xmlns="http://www.w3.org/2000/svg", **look, **size)


def _say_verdict(trace: Trace) -> tuple[str, list[Line]]:
    if trace.findings:
        first = translate_finding(trace.findings[0])
        return {"error": WRONG, "warning": WARNING}.get(first.severity, SOFT_INK), list(
            _say_finding(first, len(trace.findings))
        )
    if trace.error:
        return WRONG, [("bold", INK, say("the step ended by {error}", error=trace.error.splitlines()[0]))]
    return GOOD, [("bold", INK, findings_words(trace))]


def _say_finding(finding: Finding, count: int) -> Iterator[Line]:
    yield "bold", INK, finding.headline.replace("`", "")
    if count > 1:
        more = say("1 of {count}", count=count)
    else:
        more = ""
    yield "plain", SOFT_INK, row_words((module_words(finding.module), site_words(finding.fault), more))
    fix = next(iter(finding.fixes), None)
    for row in [row for edit in fix.edits for row in changed_lines(edit)][:_MOST_CODE] if fix else ():
        yield "code", WRONG if row.startswith("-") else GOOD, row


def _draw_line(at: int, line: Line, width: int) -> Markup:
    font, hue, text = line
    letters = int((width - 2 * _LEFT) / (MONO if font == "code" else SANS))
    look = {
        "font-family": MONO_FONT if font == "code" else "",
        "font-weight": "600" if font == "bold" else "",
        "xml:space": "preserve",
    }
    return draw_text(_LEFT, 21 + _LINE * at, cut_line(text, letters), fill=hue, **look)
