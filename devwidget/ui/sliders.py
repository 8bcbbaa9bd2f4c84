"""Sliders over a plan: the page itself fills in between the plans that were run, so that it answers at once."""

from __future__ import annotations

import anywidget
from traitlets import Dict

from devwidget.records.answers.fitted import Fitted
from devwidget.report.page.assets import SLIDERS, joined, page_words, static_text
from devwidget.report.page.sliders_card import sliders_content, sliders_words
from devwidget.ui.displayed import speak_along


class Sliders(anywidget.AnyWidget):
    """A slider for the batch, the length of texts and the memory of each GPU.

    Attributes:
        fitted: the plans, and what lies between them.
    """

    _esm = joined(*SLIDERS)
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
