"""All ranks of a job as data frames."""

from __future__ import annotations

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.views.job import find_age
from devwidget.extras.ranks.views.meetings import find_meetings
from devwidget.extras.ranks.words.cluster import difference_words
from devwidget.report.data_frames import Columns, attribute_columns, frame, site_columns


def _of_all_ranks(cluster: Cluster) -> Columns:
    """Collectives of all ranks: of groups whose ranks did the same one stands for all, with how many there are."""
    if cluster.traced is not None:
        met = find_meetings(cluster.traced)
    else:
        met = ()
    calls = [meeting.call for meeting in met]
    columns = attribute_columns(calls, "kind", "sequence", "bytes", "module", "phase", "by")
    columns["group"] = [meeting.group.label for meeting in met]
    columns |= attribute_columns(met, "ranks")
    columns["groups"] = [meeting.times for meeting in met]
    columns["differs"] = list(map(difference_words, met))
    return columns | site_columns([call.site for call in calls])


def _of_each_rank(cluster: Cluster) -> Columns:
    columns = attribute_columns(cluster.ranks, "number", "state")
    reports = [rank.said for rank in cluster.ranks]
    columns |= attribute_columns(reports, "host", "pid")
    columns["coordinates"] = [cluster.find_coordinates(rank) for rank in cluster.ranks]
    places = lay_out_columns(cluster).place_ranks()
    columns["placement"] = [places.get(rank.number, NOWHERE) for rank in cluster.ranks]
    columns |= attribute_columns(reports, "device", "step")
    columns["age"] = [find_age(cluster, rank) for rank in cluster.ranks]
    return columns | attribute_columns(cluster.ranks, "note")


frame(Cluster, {"ranks": _of_each_rank, "collectives": _of_all_ranks})
