"""A cluster -> what a page needs to draw it; each different text is sent once, and ranks refer to it by number."""

from __future__ import annotations

import datetime
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.ranks.cluster import NOWHERE, Cluster, Rank
from devwidget.records.ranks.runs import runs_of
from devwidget.report.page.cards import finding_card
from devwidget.report.page.ranks.holdings import placement_columns
from devwidget.report.page.ranks.step import step_content
from devwidget.report.style.safe_text import displayed
from devwidget.report.style.units import counted, format_bytes, format_seconds
from devwidget.report.style.words import first_line, ranks_words, row_words, site_words
from devwidget.report.text.cluster_text import by_state, headline
from devwidget.views.ranks.job import Span, Standing, coordinates, lanes, peak, spans, standings, taken

Content = dict[str, Any]
TROUBLE = ("dead", "hung", "stopped", "unknown", "busy", "stale", "answered")
"""States, the worst first."""


@displayed
def ranks_content(cluster: Cluster) -> Content:
    """Everything that the panel of a job shows."""
    states = by_state(cluster)
    return {
        "title": headline(cluster),
        "asked": _time(cluster.asked),
        "axes": [[axis.name, axis.size] for axis in cluster.axes],
        "states": [[state, len(states[state])] for state in TROUBLE if state in states],
        "lanes": [list(lane) for lane in lanes(cluster)],
        "ranks": [_rank(cluster, rank) for rank in cluster.ranks],
        "stacks": [[[site_words(site), first_line(site)] for site in stack] for stack in cluster.stacks],
        "spans": [_span(span) for span in spans(cluster)],
        "findings": [finding_card(finding, -1) for finding in cluster.findings],
        "checked": list(cluster.checked),
        "not_checked": list(map(said, cluster.not_checked)),
        "columns": [[ranks_words(each.ranks), format_bytes(each.bytes), each.ranks] for each in cluster.placements],
        "step": step_content(cluster.traced) if cluster.traced is not None else None,
        **placement_columns(cluster),
    }


def _rank(cluster: Cluster, rank: Rank) -> Content:
    """One rank; what is not known is left out, because there may be a thousand."""
    facts = {
        "state": rank.state,
        "at": list(coordinates(cluster, rank)),
        "column": rank.placement if rank.placement != NOWHERE else None,
        "taken": taken(rank) if taken(rank) >= 0 else None,
        "memory": _memory(rank),
        "where": " ".join(filter(None, (rank.host, say("process {pid}", pid=rank.pid) if rank.pid else ""))),
        "device": str(rank.device) if rank.device is not None else "",
        "step": rank.step if rank.step >= 0 else None,
        "age": format_seconds(rank.age) if rank.age else "",
        "note": said(rank.note),
        "stack": rank.stack if rank.stack != NOWHERE and rank.state != "answered" else None,
        **_waits(cluster, rank),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


def _memory(rank: Rank) -> str:
    if taken(rank) < 0:
        return ""
    allocated = say("{size} allocated", size=format_bytes(taken(rank)))
    return row_words((allocated, say("peak {size}", size=format_bytes(peak(rank))) if peak(rank) > 0 else ""))


def _waits(cluster: Cluster, rank: Rank) -> Content:
    """The collective in which a rank waits, and how far the others of its group are."""
    waits = rank.collective
    if waits is None or waits.finished:
        return {}
    where = say("{kind} number {number}", kind=waits.kind or say("collective"), number=waits.sequence)
    if waits.group:
        where = say("{collective} of group {group}", collective=where, group=waits.group)
    if waits.seconds:
        where = say("{collective} for {time}", collective=where, time=format_seconds(waits.seconds))
    size = format_bytes(waits.bytes) if waits.bytes else ""
    far = [[ranks_words(each.ranks), _standing(each)] for each in standings(cluster, rank)]
    missing = set(waits.ranks) - {number for each in cluster.ranks if each.groups for number in [each.number]}
    if far and missing:
        far.append([ranks_words(runs_of(missing)), say("have not said")])
    return {"waits": row_words((where, size)), "far": far}


def _standing(each: Standing) -> str:
    begun = counted(each.begun, "collective")
    return say("began {collectives}, {finished} are over", collectives=begun, finished=f"{each.finished:,}")


def _span(span: Span) -> Content:
    named = {"least": span.least, "most": span.most}
    return {
        "name": span.name,
        "median": format_bytes(span.median),
        **{name: [format_bytes(size), number] for name, (size, number) in named.items()},
        "outlier": span.outlier if span.outlier != NOWHERE else None,
        "share": [round(size / max(span.most[0], 1), 3) for size in (span.least[0], span.median, span.most[0])],
    }


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).strftime("%H:%M:%S") if seconds else ""
