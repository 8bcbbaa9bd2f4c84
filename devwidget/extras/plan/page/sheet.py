"""What the pages of a plan and of a layout have in common: the document, the header with its GPUs, the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.page.marks import GLYPHS, draw_glyph, draw_percent
from devwidget.language.speaking import language, say
from devwidget.records.device import DeviceId
from devwidget.report.page.assets import files_of_extra, static_text
from devwidget.report.style.palette import device_hue
from devwidget.report.style.safe_text import Markup, html_element, join_html
from devwidget.report.style.units import count_words, format_bytes

STYLES = "base.css", "panel.css", *files_of_extra("plan", "plan.css")
_LOOKS: dict[Fit, str] = {"fits": "clean", "fits by less": "warning", "does not fit": "error"}
"""Answer -> how the verdict looks."""


class Gpu(Protocol):
    """A GPU as a plan or a layout has it."""

    @property
    def device(self) -> DeviceId:
        """Which it is."""

    @property
    def on_card(self) -> int:
        """The most that is taken of it, in bytes."""

    @property
    def capacity(self) -> int:
        """What it has, in bytes."""


def draw_output(page: Markup) -> Markup:
    """A page as an output of a notebook, with its style."""
    return join_html(html_element("style", Markup("\n".join(map(static_text, STYLES)))), page)


def draw_document(title: str, page: Markup) -> str:
    """A page as a self-contained file, in the colour scheme of the reader."""
    view = Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">')
    style = html_element("style", Markup(static_text("page.css")))
    head = html_element("head", view, html_element("title", title), style)
    body = html_element("body", html_element("main", draw_output(page)))
    return f"<!DOCTYPE html>\n{html_element('html', head, body, lang=language())}\n"


def draw_header(model: str, facts: Iterable[str], gpus: Sequence[Gpu]) -> Markup:
    """The model, what is known of the step, and how full each GPU is."""
    count = say("1 GPU that is not here")
    if len(gpus) > 1:
        count = say("{gpus} that are not here", gpus=count_words(len(gpus), "GPU"))
    known = [html_element("span", fact) for fact in (*facts, count) if fact]
    parts = (
        html_element("strong", model, class_="dw-title", title=model),
        html_element("span", *known, class_="dw-facts dw-soft"),
        html_element("span", *map(_draw_meter, gpus), class_="dw-chips"),
    )
    return html_element("div", html_element("div", *parts, class_="dw-headline", style="flex: 1"), class_="dw-top")


def _draw_meter(gpu: Gpu) -> Markup:
    share = gpu.on_card / max(gpu.capacity, 1)
    marks = [html_element("i", class_="dw-meter-peak", style=f"width:{draw_percent(min(share, 1))}")]
    look = "dw-meter-words"
    if share > 1:
        marks.append(html_element("i", class_="dw-meter-refused"))
        look = "dw-meter-words dw-over"
    sizes = {"size": format_bytes(gpu.on_card), "capacity": format_bytes(gpu.capacity)}
    title = say("{device}: {size} of {capacity}", device=gpu.device, **sizes)
    parts = (
        html_element("span", class_="dw-dot", **{"aria-hidden": "true"}),
        html_element("span", str(gpu.device), class_="dw-meter-name"),
        html_element("span", *marks, class_="dw-meter-bar", role="img", **{"aria-label": title}),
        html_element("span", say("{size} of {capacity}", **sizes), class_=look),
    )
    return html_element("span", *parts, class_="dw-meter", style=f"--dw-hue:{device_hue(gpu.device)}")


def draw_verdict(fit: Fit, sentence: str, more: str, beside: str, action: Markup) -> Markup:
    """The answer, what is known of the next thing to do, and what to press or write for it."""
    words = html_element("b", sentence), html_element("span", more, class_="dw-soft")
    line = [draw_glyph(GLYPHS[fit]), html_element("p", *words, class_="dw-sentence")]
    if beside:
        line.append(html_element("span", beside, class_="dw-tried"))
    whole = html_element("div", *line, action, class_="dw-verdict-line")
    part = html_element("div", whole, class_=f"dw-verdict-part dw-verdict-{_LOOKS[fit]}")
    return html_element("section", part, class_="dw-verdict", **{"aria-label": say("verdict")})
