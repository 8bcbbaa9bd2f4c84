"""Answers as pages without script: a plan, what would fit, a comparison, the schedule of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devwidget.language.speaking import language, said, say
from devwidget.records.answers import Changes, Generation, LargestBatch, Layout
from devwidget.records.comparison import Comparison
from devwidget.records.finding import Finding
from devwidget.records.plan import DevicePlan, Plan
from devwidget.records.ranks.parallel_plan import Pipeline, PipelineAction
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.report.style.palette import CATEGORY_HUES
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import code_word
from devwidget.report.text.answers import (
    action_words,
    generation_rows,
    generation_sentence,
    layout_rows,
    layout_sentence,
    pipeline_headline,
    pipeline_key,
    what_if_rows,
    what_if_sentence,
)
from devwidget.report.text.comparison_text import change_rows, verdict_words
from devwidget.report.text.finding_text import finding_text
from devwidget.report.text.plan_text import (
    PARTS,
    band_words,
    guess_words,
    moment_words,
    plan_verdict,
    size_cells,
    tips_words,
    totals_of,
)


def static_page(title: str, body: Markup) -> str:
    """One page that stands alone, light or dark as its reader is."""
    head = html_element(
        "head",
        Markup('<meta charset="utf-8">'),
        html_element("title", title),
        style_element(":root { color-scheme: light dark }"),
    )
    return f"<!DOCTYPE html>\n{html_element('html', head, html_element('body', body), lang=language())}\n"


def style_element(rules: str) -> Markup:
    """Rules of CSS as an element."""
    return html_element("style", Markup(rules))


_PARTS = {"weights": "parameters", "gradients": "gradients", "optimizer": "optimizer", "activations": "activations",
          "cached": "cache", "context": "others"}  # fmt: skip
"""Part of a plan -> the category whose colour it has on every screen."""
_ON_CARD = {"cached": Message("cached"), "context": Message("context")}
_PLAN_STYLE = """
.devwidget-plan { font: 13px/1.5 system-ui, sans-serif; max-width: 60em }
.devwidget-plan table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .6em 0 }
.devwidget-plan th, .devwidget-plan td { text-align: right; padding: .15em .7em; border: 0; background: none }
.devwidget-plan th:first-child, .devwidget-plan td:first-child, .devwidget-plan td:last-child { text-align: left }
.devwidget-plan .bar { position: relative; display: flex; height: 1.1em; margin: .15em 0 .5em }
.devwidget-plan .bar { background: rgba(128,128,128,.15) }
.devwidget-plan .limit { position: absolute; top: -.2em; bottom: -.2em; border-left: 2px solid currentColor }
.devwidget-plan .key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .9em }
.devwidget-plan .over { color: #d1343b; font-weight: 600 }
"""


@presents("html", Plan)
def plan_page(plan: Plan) -> str:
    """One page that stands alone."""
    return static_page(say("Plan: {model}", model=plan.model), plan_html(plan))


@presents("notebook", Plan)
def plan_html(plan: Plan) -> Markup:
    """What a notebook shows."""
    reach = max((max(device.capacity, device.on_card) for device in plan.devices), default=0) or 1
    shown = [part for part in _PARTS if part in PARTS or plan.card]
    keys = join_html(
        *(
            join_html(html_element("span", class_="key", style=f"background: {_part_hue(part)}"), _part_words(part))
            for part in shown
        )
    )
    problems = (html_element("p", tips_words(plan, device), class_="over") for device in plan.devices if device.tips_over)
    bars = (_plan_bar(device, reach) for device in plan.devices)
    guesses = html_element("p", guess_words(plan)) if plan.guesses else ""
    parts = (
        html_element("p", html_element("b", plan_verdict(plan))),
        *bars,
        html_element("p", keys),
        *problems,
        _plan_table(plan),
        html_element("p", band_words(plan)) if plan.card else "",
        guesses,
        _device_map_table(plan),
    )
    return join_html(style_element(_PLAN_STYLE), html_element("div", *parts, class_="devwidget-plan"))


def _plan_bar(device: DevicePlan, reach: int) -> Markup:
    sizes_of = {"size": format_bytes(device.on_card), "capacity": format_bytes(device.capacity)}
    title = say("{device}: {size} of {capacity}", device=device.device, **sizes_of)
    slices = (
        html_element(
            "span",
            style=f"width: {_percent_of(getattr(device, part), reach)}; background: {_part_hue(part)}",
            title=f"{_part_words(part)} {format_bytes(getattr(device, part))}",
        )
        for part in _PARTS
    )
    limit = html_element("span", class_="limit", style=f"left: {_percent_of(device.capacity, reach)}", title=say("its memory"))
    heading = html_element("span", title, class_="" if device.fits else "over")
    return join_html(heading, html_element("div", *slices, limit, class_="bar"))


def _percent_of(size: int, reach: int) -> str:
    return f"{100 * size / reach:.2f}%"


def _part_key(part: str) -> Markup:
    return join_html(html_element("span", class_="key", style=f"background: {_part_hue(part)}"), _part_words(part))


def _part_words(part: str) -> str:
    return said({**PARTS, **_ON_CARD}[part])


def _part_hue(part: str) -> str:
    return CATEGORY_HUES[_PARTS[part]]


def _plan_table(plan: Plan) -> Markup:
    head = html_element(
        "thead", _table_row("th", ("", *map(said, (*totals_of(plan).values(), *PARTS.values())), say("the peak is in")))
    )
    return html_element("table", head, html_element("tbody", *(_device_row(plan, device) for device in plan.devices)))


def _device_row(plan: Plan, device: DevicePlan) -> Markup:
    return _table_row("td", (str(device.device), *size_cells(device, totals_of(plan)), moment_words(plan, device.peak_at)))


def _device_map_table(plan: Plan) -> str:
    rows = (_table_row("td", (path or say("the whole model"), device)) for path, device in plan.device_map)
    return (
        html_element("details", html_element("summary", say("device map")), html_element("table", *rows))
        if plan.device_map
        else ""
    )


def _table_row(cell: str, texts: Iterable[str]) -> Markup:
    return html_element("tr", *(html_element(cell, text) for text in texts))


_WHAT_IF_STYLE = """
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
    return static_page(_answer_sentence(answer), what_if_html(answer))


@presents("notebook", Generation)
@presents("notebook", Layout)
@presents("notebook", LargestBatch)
@presents("notebook", Changes)
def what_if_html(answer: Answer) -> Markup:
    """What a notebook shows."""
    head, *planned = _answer_rows(answer)
    lines = (_table_row("th", head), *(_table_row("td", row) for row in planned))
    rejected = (
        [_table_row("td", (said(each.what), said(each.why))) for each in answer.rejected] if isinstance(answer, Layout) else []
    )
    tried = (
        html_element("details", html_element("summary", say("tried before")), html_element("table", *rejected))
        if rejected
        else ""
    )
    parts = (html_element("p", html_element("b", _answer_sentence(answer))), html_element("table", *lines), tried)
    return join_html(style_element(_WHAT_IF_STYLE), html_element("div", *parts, class_="devwidget-what-if"))


def _answer_sentence(answer: Answer) -> str:
    if isinstance(answer, Generation):
        return generation_sentence(answer)
    return layout_sentence(answer) if isinstance(answer, Layout) else what_if_sentence(answer)


def _answer_rows(answer: Answer) -> list[tuple[str, ...]]:
    if isinstance(answer, Generation):
        return generation_rows(answer)
    return layout_rows(answer) if isinstance(answer, Layout) else what_if_rows(answer)


_COMPARISON_STYLE = """
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
    rows = [_table_row("th", ("", say("before"), say("after"))), *(_table_row("td", row) for row in change_rows(compared))]
    findings = [
        _table_row("th", ("", say("before"), say("after"))),
        _table_row("td", (say("fixed, and new"), _finding_texts(compared.fixed), _finding_texts(compared.new))),
        _table_row("td", (say("in both"), _finding_texts(compared.left), _finding_texts(compared.left))),
    ]
    parts = (
        html_element("p", html_element("b", verdict_words(compared))),
        html_element("table", *rows),
        html_element("table", *findings),
    )
    return join_html(style_element(_COMPARISON_STYLE), html_element("div", *parts, class_="devwidget-compare"))


def _finding_texts(findings: Iterable[Finding]) -> Markup:
    return join_html(*(html_element("pre", finding_text(finding)) for finding in findings))


_PIPELINE_STYLE = """
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
        html_element(
            "tr", html_element("th", say("rank {number}", number=at), scope="row"), *_pipeline_cells(pipeline, actions)
        )
        for at, actions in enumerate(pipeline.ranks)
    )
    table = html_element("div", html_element("table", *rows))
    parts = (
        html_element("p", html_element("b", pipeline_headline(pipeline))),
        table,
        html_element("p", pipeline_key(pipeline)),
    )
    return join_html(style_element(_PIPELINE_STYLE), html_element("div", *parts, class_="devwidget-pipeline"))


def _pipeline_cells(pipeline: Pipeline, actions: tuple[PipelineAction, ...]) -> Iterator[Markup]:
    at = 0
    for action in actions:
        if action.start > at:
            yield html_element("td", colspan=str(action.start - at))
        at = action.start + action.width
        facts = {"kind": code_word(action.kind), "microbatch": action.microbatch, "stage": action.stage}
        title = say("{kind} of microbatch {microbatch} in stage {stage}", **facts)
        yield html_element(
            "td", action_words(pipeline, action), colspan=str(action.width), title=title, class_=_CLASSES[action.kind]
        )
