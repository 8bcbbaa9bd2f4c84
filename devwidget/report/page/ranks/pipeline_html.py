"""A pipeline's schedule as HTML, without script: a table in which a cell is as wide as its time."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import say
from devwidget.records.ranks.pipeline import Pipeline, PipelineAction
from devwidget.records.schema.record import presents
from devwidget.report.page.answers.static_page import static_page, style
from devwidget.report.style.code_words import code_word
from devwidget.report.style.safe_text import Markup, element, together
from devwidget.report.text.pipeline_text import action_words, pipeline_headline, pipeline_key

_STYLE = """
.devwidget-pipeline { font: 13px/1.5 system-ui, sans-serif }
.devwidget-pipeline div { overflow-x: auto }
.devwidget-pipeline table { border-collapse: separate; border-spacing: 1px; table-layout: fixed; margin: .5em 0 }
.devwidget-pipeline td, .devwidget-pipeline th { min-width: 2.1em; padding: .1em .2em; border-radius: 2px; background: none }
.devwidget-pipeline td, .devwidget-pipeline th { text-align: center; font-size: 11px; border: 0 }
.devwidget-pipeline th { text-align: right; font-weight: 400; white-space: nowrap; padding-right: .7em }
.devwidget-pipeline .forward { background: light-dark(#bcd7f5, #1f4a7a) }
.devwidget-pipeline .backward { background: light-dark(#f6d3a3, #7a4a12) }
.devwidget-pipeline .input { background: light-dark(#b9e3df, #17524d) }
.devwidget-pipeline .weight { background: light-dark(#cfe6bd, #3a5a22) }
.devwidget-pipeline .both { background: light-dark(#ddc9f3, #54337c) }
"""
_CLASSES = {
    "forward": "forward",
    "backward": "backward",
    "input gradient": "input",
    "weight gradient": "weight",
    "forward and backward": "both",
}


@presents("html", Pipeline)
def pipeline_page(pipeline: Pipeline) -> str:
    """One page that stands alone."""
    return static_page(pipeline_headline(pipeline), pipeline_html(pipeline))


@presents("notebook", Pipeline)
def pipeline_html(pipeline: Pipeline) -> Markup:
    """What a notebook shows."""
    rows = (
        element("tr", element("th", say("rank {number}", number=at), scope="row"), *_cells(pipeline, actions))
        for at, actions in enumerate(pipeline.ranks)
    )
    table = element("div", element("table", *rows))
    parts = (element("p", element("b", pipeline_headline(pipeline))), table, element("p", pipeline_key(pipeline)))
    return together(style(_STYLE), element("div", *parts, class_="devwidget-pipeline"))


def _cells(pipeline: Pipeline, actions: tuple[PipelineAction, ...]) -> Iterator[Markup]:
    at = 0
    for action in actions:
        if action.start > at:
            yield element("td", colspan=str(action.start - at))
        at = action.start + action.width
        facts = {"kind": code_word(action.kind), "microbatch": action.microbatch, "stage": action.stage}
        title = say("{kind} of microbatch {microbatch} in stage {stage}", **facts)
        yield element(
            "td", action_words(pipeline, action), colspan=str(action.width), title=title, class_=_CLASSES[action.kind]
        )
