"""Sliders over a plan: the page itself fills in between the plans that were run, so that it answers at once."""

from __future__ import annotations

from typing import Any

import anywidget
from traitlets import Dict

from devwidget.language.speaking import say
from devwidget.records.answers import BATCH_KNOTS, LENGTH_KNOTS, Fitted
from devwidget.report.page.assets import SLIDERS, join_modules, page_words, static_text
from devwidget.report.style.safe_text import displays_safely
from devwidget.report.style.units import count_words
from devwidget.ui.displayed import speak_along


@displays_safely
def sliders_content(fitted: Fitted) -> dict[str, Any]:
    """The state of the widget."""
    model = say("{model} on {card}", model=fitted.model, card=fitted.card) if fitted.card else fitted.model
    return {
        "title": say("{model}: what a step takes", model=model),
        "batches": list(fitted.batches),
        "lengths": list(fitted.lengths),
        "asked": list(fitted.asked),
        "knots": [BATCH_KNOTS, LENGTH_KNOTS],
        "gpus": [{"device": str(gpu.device), "capacity": gpu.capacity, "taken": list(gpu.taken)} for gpu in fitted.gpus],
        "words": sliders_words(fitted),
    }


def sliders_words(fitted: Fitted) -> str:
    """Which plans were run, and how far what is told between them is off."""
    plans = count_words(len(fitted.batches) * len(fitted.lengths), "plan")
    run = say("{plans} run, for batches of {batches}", plans=plans, batches=_list_sizes(fitted.batches))
    if len(fitted.lengths) > 1:
        run = say("{run} and texts of {lengths}", run=run, lengths=_list_sizes(fitted.lengths))
    if fitted.checked:
        off = f"{fitted.off:.1%}"
        run = say("{run}; {count} more in between: the fit was at most {off} off", run=run, count=fitted.checked, off=off)
    return say("{sentence}.", sentence=run)


def _list_sizes(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))


class Sliders(anywidget.AnyWidget):
    """A slider for the batch, the length of texts and the memory of each GPU.

    Attributes:
        fitted: the plans, and what lies between them.
    """

    _esm = join_modules(*SLIDERS)
    _css = static_text("base.css") + static_text("sliders.css")
    words = Dict().tag(sync=True)
    content = Dict().tag(sync=True)

    def __init__(self, fitted: Fitted) -> None:
        super().__init__()
        self.fitted = fitted
        self.speak()
        speak_along(self)

    def speak(self) -> None:
        """Say everything in the language of reports."""
        self.content, self.words = sliders_content(self.fitted), page_words(*SLIDERS)

    def __repr__(self) -> str:
        return f"Sliders: {self.fitted.model}. {sliders_words(self.fitted)}"
