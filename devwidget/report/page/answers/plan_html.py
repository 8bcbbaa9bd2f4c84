"""A plan as HTML, without script: a bar for each GPU against its memory, what does not fit, and the figures."""

from __future__ import annotations

from collections.abc import Iterable

from devwidget.language.speaking import said, say
from devwidget.records.plan import DevicePlan, Plan
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.report.page.answers.static_page import static_page, style
from devwidget.report.style.palette import CATEGORY_HUES
from devwidget.report.style.safe_text import Markup, element, together
from devwidget.report.style.units import format_bytes
from devwidget.report.text.plan_text import PARTS, band_words, guess_words, moment_words, sizes, tips_words, totals_of, verdict

_PARTS = {"weights": "parameters", "gradients": "gradients", "optimizer": "optimizer", "activations": "activations",
          "cached": "cache", "context": "others"}  # fmt: skip
"""Part of a plan -> the category whose colour it has on every screen."""
_ON_CARD = {"cached": Message("cached"), "context": Message("context")}
_STYLE = """
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
    keys = together(
        *(together(element("span", class_="key", style=f"background: {_hue(part)}"), _named(part)) for part in shown)
    )
    problems = (element("p", tips_words(plan, device), class_="over") for device in plan.devices if device.tips_over)
    bars = (_bar(device, reach) for device in plan.devices)
    guesses = element("p", guess_words(plan)) if plan.guesses else ""
    parts = (
        element("p", element("b", verdict(plan))),
        *bars,
        element("p", keys),
        *problems,
        _figures(plan),
        element("p", band_words(plan)) if plan.card else "",
        guesses,
        _map(plan),
    )
    return together(style(_STYLE), element("div", *parts, class_="devwidget-plan"))


def _bar(device: DevicePlan, reach: int) -> Markup:
    sizes_of = {"size": format_bytes(device.on_card), "capacity": format_bytes(device.capacity)}
    title = say("{device}: {size} of {capacity}", device=device.device, **sizes_of)
    slices = (
        element(
            "span",
            style=f"width: {_percent(getattr(device, part), reach)}; background: {_hue(part)}",
            title=f"{_named(part)} {format_bytes(getattr(device, part))}",
        )
        for part in _PARTS
    )
    limit = element("span", class_="limit", style=f"left: {_percent(device.capacity, reach)}", title=say("its memory"))
    heading = element("span", title, class_="" if device.fits else "over")
    return together(heading, element("div", *slices, limit, class_="bar"))


def _percent(size: int, reach: int) -> str:
    return f"{100 * size / reach:.2f}%"


def _key(part: str) -> Markup:
    return together(element("span", class_="key", style=f"background: {_hue(part)}"), _named(part))


def _named(part: str) -> str:
    return said({**PARTS, **_ON_CARD}[part])


def _hue(part: str) -> str:
    return CATEGORY_HUES[_PARTS[part]]


def _figures(plan: Plan) -> Markup:
    head = element("thead", _row("th", ("", *map(said, (*totals_of(plan).values(), *PARTS.values())), say("the peak is in"))))
    return element("table", head, element("tbody", *(_device(plan, device) for device in plan.devices)))


def _device(plan: Plan, device: DevicePlan) -> Markup:
    return _row("td", (str(device.device), *sizes(device, totals_of(plan)), moment_words(plan, device.peak_at)))


def _map(plan: Plan) -> str:
    rows = (_row("td", (path or say("the whole model"), device)) for path, device in plan.device_map)
    return element("details", element("summary", say("device map")), element("table", *rows)) if plan.device_map else ""


def _row(cell: str, texts: Iterable[str]) -> Markup:
    return element("tr", *(element(cell, text) for text in texts))
