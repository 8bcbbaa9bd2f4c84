"""Draw the worst finding of a trace as one SVG: what, where, and the lines that fix it; or that nothing was found."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import say
from devwidget.records.finding import Finding
from devwidget.records.trace import Trace
from devwidget.report.figures.shapes import COLOURS, MONO, MONO_FONT, SANS, SANS_FONT
from devwidget.report.page.templates import render
from devwidget.report.style.palette import GOOD, INK, SOFT_INK, WARNING, WRONG
from devwidget.report.style.safe_text import Markup
from devwidget.report.style.words import cut_line, module_words, row_words, site_words, translate_finding
from devwidget.report.text.finding_text import changed_lines
from devwidget.report.text.trace_text import findings_words

_MOST_CODE = 6
_HUES = {"error": WRONG, "warning": WARNING}
Line = tuple[str, str, str]
"""Font, colour and text: `bold`, `plain` or `code`."""


def draw_verdict(trace: Trace, width: int = 860) -> Markup:
    """An `<svg>` element of a width in pixels, drawn as `draw_devices` draws: colours are pairs, all words are text."""
    hue, lines = _say_verdict(trace)
    height = 16 + 19 * len(lines)
    look = {
        "role": "img",
        "aria-label": " ".join(text for _, _, text in lines[:2]),
        "font-size": "12",
        "style": f"color-scheme: light dark; font-family: {SANS_FONT}",
        "width": f"{width}",
        "height": f"{height}",
        "viewBox": f"0 0 {width} {height}",
    }
    drawn = [_lay_line(line, width) for line in lines]
    return render("verdict.svg", look=look, width=width, height=height, hue=hue, lines=drawn, **COLOURS)


def _say_verdict(trace: Trace) -> tuple[str, list[Line]]:
    worst = trace.findings[0] if trace.findings else None
    if worst is not None and not (trace.error and worst.severity == "info"):
        first = translate_finding(worst)
        return _HUES.get(first.severity, SOFT_INK), list(_say_finding(first, len(trace.findings)))
    if trace.error:
        return WRONG, [("bold", INK, say("the step ended with {error}", error=trace.error.splitlines()[0]))]
    return GOOD, [("bold", INK, findings_words(trace))]


def _say_finding(finding: Finding, count: int) -> Iterator[Line]:
    yield "bold", INK, finding.headline.replace("`", "")
    facts = [module_words(finding.module), site_words(finding.fault)]
    if count > 1:
        facts.append(say("1 of {count}", count=count))
    yield "plain", SOFT_INK, row_words(facts)
    rows: list[str] = []
    for fix in finding.fixes[:1]:
        for edit in fix.edits:
            rows += changed_lines(edit)
    for row in rows[:_MOST_CODE]:
        yield "code", WRONG if row.startswith("-") else GOOD, row


def _lay_line(line: Line, width: int) -> tuple[str, dict[str, str]]:
    font, hue, text = line
    style = {"fill": hue, "xml:space": "preserve"}
    letter = SANS
    if font == "code":
        style["font-family"] = MONO_FONT
        letter = MONO
    elif font == "bold":
        style["font-weight"] = "600"
    return cut_line(text, int((width - 28) / letter)), style
