"""The parts of a report as a page without script; `shows` makes all forms of a record of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from devwidget.language.speaking import language
from devwidget.records.schema.record import presents
from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.safe_text import Markup, html_element, join_html, text_of
from devwidget.report.text.draw_markdown import draw_markdown
from devwidget.report.text.draw_text import draw_lines

Build = Callable[[Any], Iterable[Part]]
_STYLE = """
.devwidget-report { font: 13px/1.5 system-ui, sans-serif; max-width: 100em }
.devwidget-report table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0 }
.devwidget-report th, .devwidget-report td { text-align: left; vertical-align: top; padding: .15em .7em }
.devwidget-report th, .devwidget-report td { border: 0; background: none }
.devwidget-report .number { text-align: right }
.devwidget-report .over { color: #d1343b; font-weight: 600 }
.devwidget-report pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3em 0 }
.devwidget-report .compared .number { text-align: left }
.devwidget-report .compared { width: 100%; table-layout: fixed }
.devwidget-report .compared tr { border-bottom: 1px solid rgba(128,128,128,.3) }
"""


def writes(*records: type) -> Callable[[Build], Build]:
    """Register a function that builds the parts of a record: for its text and its Markdown."""

    def keep(build: Build) -> Build:
        for record in records:
            presents("text", record)(lambda each: text_of(draw_lines(build(each))))
            presents("markdown", record)(lambda each: draw_markdown(build(each)))
        return build

    return keep


def shows(*records: type) -> Callable[[Build], Build]:
    """Register it also for what a notebook shows, and its page."""

    def keep(build: Build) -> Build:
        for record in records:
            presents("notebook", record)(lambda each: draw_body(build(each)))
            presents("html", record)(lambda each: draw_page(build(each)))
        return writes(*records)(build)

    return keep


def draw_page(parts: Iterable[Part]) -> str:
    """One page that stands alone, light or dark as its reader is; its title is the verdict."""
    parts = list(parts)
    title = next((part.text for part in parts if isinstance(part, Sentence) and part.look == "verdict"), "devwidget")
    scheme = html_element("style", Markup(":root { color-scheme: light dark }"))
    head = html_element("head", Markup('<meta charset="utf-8">'), html_element("title", title), scheme)
    return f"<!DOCTYPE html>\n{html_element('html', head, html_element('body', draw_body(parts)), lang=language())}\n"


def draw_body(parts: Iterable[Part]) -> Markup:
    """The parts with their style."""
    shown = (_draw_part(part) for part in parts if part.on != "text")
    return join_html(html_element("style", Markup(_STYLE)), html_element("div", *shown, class_="devwidget-report"))


def _draw_part(part: Part) -> Markup:
    match part:
        case Sentence(look="verdict"):
            return html_element("p", html_element("b", part.text))
        case Sentence():
            return html_element("p", part.text, class_=part.look)
        case Table():
            return _draw_table(part)


def _draw_table(table: Table) -> Markup:
    rows = table.rows_for("page")
    drawn = (_draw_row(row, "th" if table.has_heading and not at else "td", table.right) for at, row in enumerate(rows))
    whole = html_element("table", *drawn, class_=table.look)
    if table.title:
        return html_element("details", html_element("summary", table.title), whole)
    return whole


def _draw_row(row: Sequence[str], cell: str, right: Iterable[int]) -> Markup:
    return html_element(
        "tr", *(html_element(cell, text, class_="number" if at in right else "") for at, text in enumerate(row))
    )
