"""All ranks of a job as data frames."""

from __future__ import annotations

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.views.meetings import find_meetings
from devwidget.extras.ranks.words.cluster import difference_words
from devwidget.report.data_frames import Columns, attribute_columns, columns_of_each, frame, site_columns


def _of_all_ranks(cluster: Cluster) -> Columns:
    """Collectives of all ranks: of groups whose ranks did the same one stands for all, with how many there are."""
    met = find_meetings(cluster.traced) if cluster.traced is not None else ()
    calls = [meeting.call for meeting in met]
    columns = attribute_columns(calls, "kind", "sequence", "bytes", "module", "phase", "by")
    columns["group"] = [meeting.group.label for meeting in met]
    columns["ranks"] = [tuple(part.rank for part in meeting.parts) for meeting in met]
    columns["groups"] = [meeting.times for meeting in met]
    columns["differs"] = [difference_words(meeting) for meeting in met]
    return columns | site_columns([call.site for call in calls])


_RANK = ("number", "state", "host", "pid", "coordinates", "placement", "device", "step", "age", "note")
frame(
    Cluster,
    {
        "ranks": columns_of_each("ranks", *_RANK),
        "collectives": _of_all_ranks,
    },
)
