"""All ranks of a job in the panel of one rank's model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from devwidget.extras.ranks.records.cluster import Cluster, asker_of
from devwidget.extras.ranks.screen import RanksWidget
from devwidget.panel.actions import Panel
from devwidget.panel.bridge import refer_to
from devwidget.panel.sections import ModelOpener, Section, opens_panel, section
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.report.page.assets import files_of_extra


@section
class OtherRanks(Section):
    """A button below the devices of the model that queries all ranks, and their panel."""

    name = "ranks"
    scripts = files_of_extra("ranks", "other_ranks.js")
    methods = ("show_ranks",)

    def __init__(self, panel: Panel) -> None:
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
        if self._widget is not None:
            shown = refer_to(self._widget.view)
        else:
            shown = ""
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
