"""A layout -> what the panel of a model needs to draw it next to the current one."""

from __future__ import annotations

from typing import Any

from devwidget.extras.plan.records.answers import Layout
from devwidget.extras.plan.views import propose_picture
from devwidget.extras.plan.words.questions import layout_sentence
from devwidget.report.page.content import picture_content
from devwidget.report.style.safe_text import displays_safely
from devwidget.views.placement import PlacementTable


@displays_safely
def proposed_content(layout: Layout, table: PlacementTable) -> dict[str, Any]:
    """A layout as it would be."""
    return picture_content(propose_picture(layout, table)) | {"words": [layout_sentence(layout)]}
