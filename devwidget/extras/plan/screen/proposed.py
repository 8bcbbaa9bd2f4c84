"""What `devwidget.place` proposes, in the panel of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devwidget.extras.plan.page.proposed import proposed_content
from devwidget.extras.plan.records.answers import Layout
from devwidget.panel.sections import Section, section
from devwidget.report.page.assets import files_of_extra

if TYPE_CHECKING:
    from devwidget.panel.panel import DeviceWidget


@section
class ProposedLayout(Section):
    """The devices of a layout, next to the current devices of the model."""

    name = "proposed"
    scripts = files_of_extra("plan", "proposed.js")
    methods = ("propose",)

    def __init__(self, panel: DeviceWidget) -> None:
        super().__init__(panel)
        self._layout: Layout | None = None
        self._table = panel.table

    def propose(self, layout: Layout) -> None:
        """Draw the proposal of `devwidget.place` next to the current devices of the model."""
        with self.panel.lock:
            self._layout = layout
            self.draw()

    def follow(self) -> None:
        """Draw the layout again if the modules of the model are other ones."""
        if self.panel.table is not self._table:
            self.draw()

    def draw(self) -> None:
        """Draw the layout with the classes of the model's table."""
        self._table = self.panel.table
        if self._layout is not None:
            self.send(proposed_content(self._layout, self._table))
