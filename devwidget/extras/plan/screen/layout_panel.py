"""LayoutWidget: the page of a layout with a button that copies its device map."""

from __future__ import annotations

from devwidget.extras.plan.page.place import draw_layout, layout_in_notebook
from devwidget.extras.plan.page.sheet import STYLES
from devwidget.extras.plan.records.answers import Layout
from devwidget.panel.displayed import Displayed
from devwidget.report.page.assets import files_of_extra

LAYOUT = ("words.js", "base.js", "parts.js", *files_of_extra("plan", "layout_widget.js"))


class LayoutWidget(Displayed):
    """A layout that is shown."""

    shows = Layout
    scripts, styles = LAYOUT, STYLES

    def __init__(self, layout: Layout) -> None:
        self.layout_shown = layout
        super().__init__(page="")

    def draw(self) -> None:
        """Draw the layout."""
        self._saved = layout_in_notebook(self.layout_shown)
        self.view.page = str(draw_layout(self.layout_shown, is_live=True))
        self.save_again()

    def __repr__(self) -> str:
        return str(self.layout_shown)
