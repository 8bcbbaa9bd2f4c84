"""What a live page of a plan offers to ask: a sentence on what is run for it, and a button."""

from __future__ import annotations

from devwidget.extras.plan.page.marks import draw
from devwidget.language.speaking import said
from devwidget.records.schema.message import Message
from devwidget.report.style.safe_text import Markup, join_html

_OFFERS = {
    "changes": (
        Message("What would make it fit"),
        Message("plan each change: what it saves, what it costs, and whether the step then fits"),
        Message("Plan changes"),
    ),
    "batch": (
        Message("The largest batch"),
        Message("plan a few batches, until one fits and one more sample does not"),
        Message("Find the largest batch"),
    ),
    "sizes": (
        Message("Batch × length"),
        Message("plan about 12 sizes around this one"),
        Message("Plan sizes around it"),
    ),
    "cards": (
        Message("What fits which card"),
        Message("plan this step, LoRA and inference on each known card, with a change where one does not fit"),
        Message("Plan other cards"),
    ),
}
"""Question -> its heading, what is run for it, and its button."""


def draw_ask(question: str, look: str) -> Markup:
    """The button of a question."""
    return draw("button", said(_OFFERS[question][2]), look, "ask", question)


def draw_offer(question: str) -> Markup:
    """A part of a page that is not there before it is asked for."""
    name, what, _ = _OFFERS[question]
    return join_html(draw("heading", said(name), said(what)), draw("paragraph", draw_ask(question, "dw-button")))
