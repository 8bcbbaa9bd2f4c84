"""Answers to questions about a plan as HTML, without script: the sentence and the table."""

from __future__ import annotations

from devwidget.language.speaking import said, say
from devwidget.records.answers.generation import Generation
from devwidget.records.answers.layout import Layout
from devwidget.records.answers.what_if import Changes, LargestBatch
from devwidget.records.schema.record import presents
from devwidget.report.page.answers.static_page import static_page, style
from devwidget.report.style.safe_text import Markup, element, together
from devwidget.report.text.answers.generation_text import generation_rows, generation_sentence
from devwidget.report.text.answers.layout_text import layout_rows, layout_sentence
from devwidget.report.text.answers.what_if_text import rows, sentence

_STYLE = """
.devwidget-what-if { font: 13px/1.5 system-ui, sans-serif; max-width: 80em }
.devwidget-what-if table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0 }
.devwidget-what-if th, .devwidget-what-if td { text-align: left; padding: .15em .7em; border: 0; background: none }
"""


Answer = LargestBatch | Changes | Layout | Generation


@presents("html", Generation)
@presents("html", Layout)
@presents("html", LargestBatch)
@presents("html", Changes)
def what_if_page(answer: Answer) -> str:
    """One page that stands alone."""
    return static_page(_sentence(answer), what_if_html(answer))


@presents("notebook", Generation)
@presents("notebook", Layout)
@presents("notebook", LargestBatch)
@presents("notebook", Changes)
def what_if_html(answer: Answer) -> Markup:
    """What a notebook shows."""
    head, *planned = _rows(answer)
    lines = (_row("th", head), *(_row("td", row) for row in planned))
    rejected = [_row("td", (said(each.what), said(each.why))) for each in answer.rejected] if isinstance(answer, Layout) else []
    tried = element("details", element("summary", say("tried before")), element("table", *rejected)) if rejected else ""
    parts = (element("p", element("b", _sentence(answer))), element("table", *lines), tried)
    return together(style(_STYLE), element("div", *parts, class_="devwidget-what-if"))


def _sentence(answer: Answer) -> str:
    if isinstance(answer, Generation):
        return generation_sentence(answer)
    return layout_sentence(answer) if isinstance(answer, Layout) else sentence(answer)


def _rows(answer: Answer) -> list[tuple[str, ...]]:
    if isinstance(answer, Generation):
        return generation_rows(answer)
    return layout_rows(answer) if isinstance(answer, Layout) else rows(answer)


def _row(cell: str, texts: tuple[str, ...]) -> Markup:
    return element("tr", *(element(cell, text) for text in texts))
