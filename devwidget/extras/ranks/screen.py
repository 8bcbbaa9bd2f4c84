"""RanksWidget: the panel of all ranks of a job."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import anywidget
import ipywidgets
from traitlets import Bool, Dict, Unicode

from devwidget.extras.ranks.page import RANKS, RANKS_STYLES, plain_cluster, ranks_content
from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.panel.bridge import Control, refer_to
from devwidget.panel.displayed import Displayed, close_parts, speak_along
from devwidget.panel.questions import answer_page
from devwidget.report.page.assets import join_modules, page_words, static_text
from devwidget.report.page.html import as_saved


class RanksView(anywidget.AnyWidget):
    """The page of the panel."""

    _esm = join_modules(*RANKS)
    _css = "".join(map(static_text, RANKS_STYLES))
    words = Dict().tag(sync=True)
    content = Dict().tag(sync=True)
    status = Dict().tag(sync=True)
    control = Unicode().tag(sync=True)
    live = Bool(False).tag(sync=True)


class RanksWidget(Displayed, ipywidgets.VBox):
    """A panel of all ranks. It keeps one record and nothing live.

    Attributes:
        cluster: The record.
    """

    shows = Cluster

    def __init__(self, cluster: Cluster, ask: Callable[[], Cluster] | None = None) -> None:
        super().__init__()
        self.cluster, self._ask = cluster, ask
        self.control = Control()
        self.view = RanksView(control=refer_to(self.control), live=ask is not None)
        self.children = (self.view,)
        self.control.on_msg(functools.partial(_answer_page, self))
        self.speak()
        speak_along(self)

    def speak(self) -> None:
        """Set all texts in the current language."""
        self.view.words = page_words(*RANKS)
        self._draw_cluster()

    def ask(self) -> Cluster:
        """Query the ranks again and show the answers; a saved record cannot be queried."""
        if self._ask is not None:
            self.cluster = self._ask()
            self._draw_cluster()
        return self.cluster

    def close(self) -> None:
        """Close the panel."""
        close_parts(self, self.view, self.control)
        super().close()

    def _draw_cluster(self) -> None:
        self.view.content = ranks_content(self.cluster)
        self.save_again()

    def __repr__(self) -> str:
        return str(self.cluster)

    def _plain_html(self) -> str:
        return str(plain_cluster(self.cluster))

    def _saved_html(self) -> str:
        # As markup: a `str` would be escaped.
        return as_saved(plain_cluster(self.cluster))


def _answer_page(panel: RanksWidget, control: Control, message: Any, buffers: Any) -> None:
    def answer_question(asked: dict[str, Any]) -> dict[str, Any]:
        if asked.get("ask") == "ranks":
            panel.ask()
        return {}

    answer_page(control, message, answer_question)
