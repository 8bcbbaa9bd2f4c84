"""LayoutWidget: the page of a layout with a button that copies its device map."""

from __future__ import annotations

import anywidget
import ipywidgets
from traitlets import Dict, Unicode

from devwidget.extras.plan.page.place import draw_layout, layout_in_notebook
from devwidget.extras.plan.page.sheet import STYLES
from devwidget.extras.plan.records.answers import Layout
from devwidget.panel.displayed import Displayed
from devwidget.report.page.assets import files_of_extra, join_modules, page_words, static_text

LAYOUT = ("words.js", "base.js", "parts.js", *files_of_extra("plan", "layout_widget.js"))


class _LayoutView(anywidget.AnyWidget):
    _esm = join_modules(*LAYOUT)
    _css = "".join(map(static_text, STYLES))
    words = Dict().tag(sync=True)
    page = Unicode().tag(sync=True)
    device_map = Unicode().tag(sync=True)


class LayoutWidget(Displayed, ipywidgets.VBox):
    """A layout that is shown."""

    shows = Layout

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout_shown = layout
        self.view = _LayoutView()
        self.children = (self.view,)
        self.speak_along()

    def speak(self) -> None:
        """Say everything in the language of reports."""
        layout = self.layout_shown
        self._saved = layout_in_notebook(layout)
        self.view.words = page_words(*LAYOUT)
        self.view.device_map = repr(layout.device_map)
        self.view.page = str(draw_layout(layout, is_live=True))
        self.save_again()

    def __repr__(self) -> str:
        return str(self.layout_shown)
