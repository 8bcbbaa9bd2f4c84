"""The panel of a job as one standalone HTML page, and as what a saved notebook shows."""

from __future__ import annotations

from devwidget.records.ranks.cluster import Cluster
from devwidget.records.schema.record import presents
from devwidget.report.page.assets import RANKS, RANKS_STYLES, joined, page_words
from devwidget.report.page.html import as_text, as_value, standalone
from devwidget.report.page.ranks.content import ranks_content
from devwidget.report.style.safe_text import element, script_json
from devwidget.report.text.cluster_text import cluster_text, headline

_START = """
const page = pageHost({ ranks: { state: facts, definition: ranks } });
page.getWidget("ranks").then((widget) => widget.render({ el: document.getElementById("panel") }));
"""


@presents("html", Cluster)
def cluster_page(cluster: Cluster) -> str:
    """The whole panel as one file."""
    state = {"words": page_words(*RANKS), "content": ranks_content(cluster)}
    facts = f"const facts = {script_json(state, as_text)};"
    script = "\n".join([joined("shim.js"), as_value("ranks", joined(*RANKS)), facts, _START])
    return standalone(headline(cluster), plain_cluster(cluster), RANKS_STYLES, [script])


@presents("notebook", Cluster)
def plain_cluster(cluster: Cluster) -> str:
    """The text where no widget can run."""
    return element("pre", element("code", cluster_text(cluster)))
