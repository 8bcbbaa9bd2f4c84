"""Combine the reports of ranks to one cluster; parts that are equal on many ranks become one object."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable
from dataclasses import fields, replace
from typing import Any

from devwidget.extras.ranks.records.cluster import GONE, IN_A_ROW, Arrivals, Cluster, Rank
from devwidget.extras.ranks.records.rank import Axis, PastCollective, RankReport, silent_rank
from devwidget.extras.ranks.records.traced_steps import merge_steps, split_steps
from devwidget.records.runs import runs_of
from devwidget.records.schema.message import Message, in_row

_NOT_HEARD = Message("no data: it runs elsewhere, has not called devwidget.serve() yet, or has ended")
MOST_LAST = 8
"""Collectives of one rank that a cluster keeps."""


def merge(heard: Iterable[Rank], asked: float = 0.0) -> Cluster:
    """Return one cluster of the reports, with the ranks of the job that did not report."""
    known, older = _select_newest_job({rank.number: rank for rank in heard})
    size = max((rank.said.world_size for rank in known.values()), default=0)
    shared = _Shared()
    ranks: list[Rank] = []
    said: list[RankReport] = []
    for number in range(size):
        rank = known.get(number) or Rank("unknown", silent_rank(number), _NOT_HEARD)
        said.append(rank.said)
        ranks.append(_keep(rank, shared))
    axes = max((each.axes for each in said), key=len, default=()) or (Axis(IN_A_ROW, size),)
    traced = merge_steps({each.rank: each.traced for each in said if each.traced is not None})
    return Cluster(axes, tuple(ranks), asked=asked, traced=traced, older=runs_of(older), arrivals=find_arrivals(said))


def _select_newest_job(heard: dict[int, Rank]) -> tuple[dict[int, Rank], list[int]]:
    """Return the ranks of the most recent job, and the numbers of other ranks that left files."""
    # One of which nothing but its socket is known does not say of which job it is.
    named = [rank.said for rank in heard.values() if rank.said.host]
    told = [said for said in named if said.taken]
    newest = max(told, key=lambda said: said.taken, default=None)
    known, older = dict(heard), []
    for said in told:
        if newest is not None and not _is_of_job(said, newest):
            older.append(said.rank)
            del known[said.rank]
    return known, older


def _is_of_job(report: RankReport, other: RankReport) -> bool:
    """Return whether two reports may be of the same job; one without a run started before torch had a store."""
    same = (report.job, report.world_size) == (other.job, other.world_size)
    return same and (report.run == other.run or not report.run or not other.run)


def ranks_of_saved(cluster: Cluster) -> list[Rank]:
    """Return the ranks of a saved job with their recorded steps, so that `merge` can combine several jobs."""
    steps = {}
    if cluster.traced is not None:
        steps = split_steps(cluster.traced)
    return [replace(rank, said=replace(rank.said, traced=steps.get(rank.number))) for rank in cluster.ranks]


def _keep(rank: Rank, shared: _Shared) -> Rank:
    """Return a rank as a cluster keeps it, without the parts of the whole cluster."""
    said = rank.said
    kept = replace(said, note="", traced=None, ends=(), last=(), **shared.list_parts(said))
    if rank.hangs or rank.state in GONE:
        kept = replace(kept, last=said.last[-MOST_LAST:])
    return replace(rank, note=in_row((rank.note, said.note), "; "), said=kept)


class _Shared:
    """Makes equal parts of many reports one object, which a file stores once."""

    _names = tuple(field.name for field in fields(RankReport) if field.metadata.get("is_shared"))

    def __init__(self) -> None:
        self._by_value: dict[Hashable, Any] = {}
        self._by_id: dict[int, tuple[Any, Any]] = {}

    def list_parts(self, said: RankReport) -> dict[str, Any]:
        """Return the shared fields of a report."""
        return {name: self._find_equal(getattr(said, name)) for name in self._names}

    def _find_equal(self, part: Any) -> Any:
        # A model is long to hash, and equal ones are mostly one.
        if id(part) not in self._by_id:
            self._by_id[id(part)] = part, self._by_value.setdefault(part, part)
        return self._by_id[id(part)][1]


_FEWEST = 3
"""Number of ranks from which one can be called late; with two, each is late for the other."""


def find_arrivals(reports: Iterable[RankReport]) -> tuple[Arrivals, ...]:
    """Return the collectives that every rank of their group has called, in order of their start."""
    told = [report for report in reports if report.last]
    ahead = _find_clocks(told)
    came: dict[tuple[str, int, int, int], list[tuple[float, int, PastCollective]]] = {}
    for report in told:
        late = ahead.get(_clock_of(report))
        if late is None:
            continue
        for each in report.last:
            came.setdefault(each.key, []).append((each.begun - late, report.rank, each))
    whole = (times for (*_, size, _), times in came.items() if len(times) == size >= _FEWEST)
    found = map(_describe, whole)
    return tuple(sorted(found, key=lambda each: each.begun))


def _describe(times: list[tuple[float, int, PastCollective]]) -> Arrivals:
    first, *_, (before, *_), (last, rank, call) = sorted(times, key=lambda each: each[:2])
    return Arrivals(call.group, len(times), rank, last - before, first[0])


def _clock_of(report: RankReport) -> str:
    """Return what identifies a clock: processes under one kernel share it."""
    return report.machine.partition(" ")[0] or report.host


def _find_clocks(reports: list[RankReport]) -> dict[str, float]:
    """Return the offset of the clock of each machine from the first one.

    Ranks end a common step together, so a constant difference between machines is an offset, or a rank that is late after the
    step: then no rank is called late, rather than a wrong one. Without a common step there are no offsets.
    """
    ends: dict[str, dict[int, list[float]]] = {}
    for report in reports:
        by_step = ends.setdefault(_clock_of(report), {})
        for step, at in report.ends:
            by_step.setdefault(step, []).append(at)
    if not ends:
        return {}
    first, *others = ends
    ahead = {first: 0.0}
    for clock in others:
        common = ends[first].keys() & ends[clock].keys()
        if common:
            ahead[clock] = statistics.median(
                statistics.median(ends[clock][step]) - statistics.median(ends[first][step]) for step in common
            )
    return ahead
