"""All ranks of a job as data frames."""

from __future__ import annotations

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.views.job import find_age
from devwidget.extras.ranks.views.meetings import find_meetings
from devwidget.extras.ranks.words.cluster import difference_words
from devwidget.report.data_frames import Columns, attribute_columns, frame, site_columns


def _of_all_ranks(cluster: Cluster) -> Columns:
    """Return collectives of all ranks; one stands for groups whose ranks did the same, with their number."""
    if cluster.traced is not None:
        met = find_meetings(cluster.traced)
    else:
        met = ()
    calls, labels, times = [], [], []
    for meeting in met:
        calls.append(meeting.call)
        labels.append(meeting.group.label)
        times.append(meeting.times)
    columns = attribute_columns(calls, "kind", "sequence", "bytes", "module", "phase", "by") | {"group": labels}
    columns |= attribute_columns(met, "ranks") | {"groups": times, "differs": list(map(difference_words, met))}
    return columns | site_columns(calls)


def _of_each_rank(cluster: Cluster) -> Columns:
    place_of = lay_out_columns(cluster).place_ranks()
    reports, coordinates, places, ages = [], [], [], []
    for rank in cluster.ranks:
        reports.append(rank.said)
        coordinates.append(cluster.find_coordinates(rank))
        places.append(place_of.get(rank.number, NOWHERE))
        ages.append(find_age(cluster, rank))
    columns = attribute_columns(cluster.ranks, "number", "state") | attribute_columns(reports, "host", "pid")
    columns |= {"coordinates": coordinates, "placement": places, **attribute_columns(reports, "device", "step"), "age": ages}
    return columns | attribute_columns(cluster.ranks, "note")


frame(Cluster, {"ranks": _of_each_rank, "collectives": _of_all_ranks})
