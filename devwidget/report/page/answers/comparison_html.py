"""A comparison as HTML, without script: before and after side by side, in one table that scrolls as one."""

from __future__ import annotations

from collections.abc import Iterable

from devwidget.language.speaking import say
from devwidget.records.comparing.comparison import Comparison
from devwidget.records.finding import Finding
from devwidget.records.schema.record import presents
from devwidget.report.page.answers.static_page import static_page, style
from devwidget.report.style.safe_text import Markup, element, together
from devwidget.report.text.comparison_text import change_rows, verdict_words
from devwidget.report.text.finding_text import finding_text

_STYLE = """
.devwidget-compare { font: 13px/1.5 system-ui, sans-serif; max-width: 100em }
.devwidget-compare table { border-collapse: collapse; width: 100%; table-layout: fixed; margin: .6em 0 }
.devwidget-compare th, .devwidget-compare td { text-align: left; vertical-align: top; padding: .2em .8em }
.devwidget-compare th, .devwidget-compare td { border: 0; background: none }
.devwidget-compare tr { border-bottom: 1px solid rgba(128,128,128,.3) }
.devwidget-compare pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3em 0 }
"""


@presents("html", Comparison)
def comparison_page(compared: Comparison) -> str:
    """One page that stands alone."""
    return static_page(say("devwidget: before and after"), comparison_html(compared))


@presents("notebook", Comparison)
def comparison_html(compared: Comparison) -> Markup:
    """What a notebook shows."""
    rows = [_row("th", "", say("before"), say("after")), *(_row("td", *row) for row in change_rows(compared))]
    findings = [
        _row("th", "", say("before"), say("after")),
        _row("td", say("fixed, and new"), _findings(compared.fixed), _findings(compared.new)),
        _row("td", say("in both"), _findings(compared.left), _findings(compared.left)),
    ]
    parts = (element("p", element("b", verdict_words(compared))), element("table", *rows), element("table", *findings))
    return together(style(_STYLE), element("div", *parts, class_="devwidget-compare"))


def _findings(findings: Iterable[Finding]) -> Markup:
    return together(*(element("pre", finding_text(finding)) for finding in findings))


def _row(cell: str, *texts: str) -> Markup:
    return element("tr", *(element(cell, text) for text in texts))
