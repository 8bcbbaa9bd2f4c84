"""The panel of all ranks of a job, and the button in the panel of one rank's model that opens it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from devwidget.extras.ranks.page import RANKS, RANKS_STYLES, plain_cluster, ranks_content
from devwidget.extras.ranks.records.cluster import Cluster, asker_of
from devwidget.panel.bridge import refer_to
from devwidget.panel.displayed import Displayed
from devwidget.panel.sections import ModelOpener, Section, opens_panel, section
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.report.page.assets import files_of_extra

if TYPE_CHECKING:
    from devwidget.panel.panel import DeviceWidget


class RanksWidget(Displayed):
    """A panel of all ranks. It keeps one record and nothing live."""

    shows = Cluster
    scripts, styles = RANKS, RANKS_STYLES

    def __init__(self, cluster: Cluster, ask: Callable[[], Cluster] | None = None) -> None:
        self.cluster, self._ask = cluster, ask
        super().__init__(content={}, live=ask is not None)

    def draw(self) -> None:
        """Draw the answers."""
        self._saved = plain_cluster(self.cluster)
        self.view.content = ranks_content(self.cluster)
        self.save_again()

    def ask(self) -> Cluster:
        """Query the ranks again and show the answers; a saved record cannot be queried."""
        if self._ask is not None:
            self.cluster = self._ask()
            self.draw()
        return self.cluster

    def answer_question(self, message: dict[str, Any]) -> dict[str, Any]:
        """Query the ranks for the page."""
        if message.get("ask") == "ranks":
            self.ask()
        return {}

    def __repr__(self) -> str:
        return str(self.cluster)


@section
class OtherRanks(Section):
    """A button below the devices of the model that queries all ranks, and their panel."""

    name = "ranks"
    scripts = files_of_extra("ranks", "other_ranks.js")
    methods = ("show_ranks",)

    def __init__(self, panel: DeviceWidget) -> None:
        super().__init__(panel)
        self._widget: RanksWidget | None = None

    def show_ranks(self) -> None:
        """Query all ranks of the job of this process, and show them in the tab Devices."""
        ask = find_asker()
        if ask is None:
            raise DevwidgetError(
                Message("this process does not answer as a rank"), instead=Message("call devwidget.serve(), then try again")
            )
        cluster = ask()
        self.close()
        self._widget = RanksWidget(cluster, ask)
        self.follow()

    def follow(self) -> None:
        """Show the button while this process answers as a rank."""
        offered = find_asker() is not None
        shown = ""
        if self._widget is not None:
            shown = refer_to(self._widget.view)
        self.send({"offered": offered, "widget": shown} if offered or shown else {})

    def answer_question(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Query the ranks for the page."""
        if message.get("ask") != "ranks":
            return None
        self.show_ranks()
        return {}

    def close(self) -> None:
        """Close the panel of the ranks."""
        if self._widget is not None:
            self._widget.close()


def find_asker() -> Callable[[], Cluster] | None:
    """Return how to query the ranks of this job, if this process answers as one. Loads nothing."""
    agents = sys.modules.get("devwidget.extras.ranks.agent")
    agent = agents.serving_agent() if agents is not None else None
    if agent is None:
        return None
    from devwidget.extras.ranks import api

    return lambda: api.ranks(agent.folder)


@opens_panel(Cluster)
def open_cluster(cluster: Cluster, open_model: ModelOpener) -> RanksWidget:
    """Open the panel of all ranks of a job."""
    return RanksWidget(cluster, asker_of(cluster))
