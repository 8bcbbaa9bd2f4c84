"""A cluster as text: its ranks by state, the distinct placements, each rank that is not as the others, the findings."""

from __future__ import annotations

import math
from collections.abc import Iterator

from devwidget.records.ranks.cluster import NOWHERE, Cluster, Placement, Rank
from devwidget.records.ranks.rank import RankReport
from devwidget.records.ranks.runs import in_words, runs_of
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import safe_text, text_of
from devwidget.report.style.units import counted, format_bytes, format_seconds
from devwidget.report.style.words import first_line, site_words
from devwidget.report.text.finding_text import finding_lines

_MOST_RANKS, _MOST_LINES = 16, 6


@presents("text", Cluster)
def cluster_text(cluster: Cluster) -> str:
    """All ranks at one moment."""
    return text_of(_lines(cluster))


@presents("text", RankReport)
def report_text(report: RankReport) -> str:
    """One rank alone."""
    modules = len(report.model.modules) if report.model is not None else 0
    told = f"rank {report.rank} of {report.world_size} on {report.host}, process {report.pid}, {counted(modules, 'module')}"
    return safe_text(told)


def _lines(cluster: Cluster) -> Iterator[str]:
    yield headline(cluster)
    for placement in cluster.placements:
        yield f"  {in_words(placement.ranks)}: {_placement_words(cluster, placement)}"
    odd = [rank for rank in cluster.ranks if rank.state != "answered"]
    if odd:
        yield ""
        yield from columns([_rank_row(rank) for rank in odd[:_MOST_RANKS]], indent="  ")
    for rank in odd[:_MOST_RANKS]:
        yield from _stack_lines(cluster, rank)
    if len(odd) > _MOST_RANKS:
        yield f"  and {len(odd) - _MOST_RANKS} more"
    for finding in cluster.findings:
        yield ""
        yield from finding_lines(finding)


def headline(cluster: Cluster) -> str:
    """`4 ranks as dp 2 x tp 2 · 3 answered, 1 hung · 2 distinct placements`."""
    mesh = " x ".join(f"{axis.name} {axis.size}" for axis in cluster.axes)
    shape = (
        f" as {mesh}" if math.prod(axis.size for axis in cluster.axes) == len(cluster.ranks) and len(cluster.axes) > 1 else ""
    )
    states = [f"{len(ranks)} {state}" for state, ranks in by_state(cluster).items()]
    return " · ".join(
        (counted(len(cluster.ranks), "rank") + shape, ", ".join(states), counted(len(cluster.placements), "distinct placement"))
    )


def by_state(cluster: Cluster) -> dict[str, list[int]]:
    """The numbers of the ranks in each state."""
    found: dict[str, list[int]] = {}
    for rank in cluster.ranks:
        found.setdefault(rank.state, []).append(rank.number)
    return found


def _placement_words(cluster: Cluster, placement: Placement) -> str:
    """`1.2 MiB in 36 tensors; Shard(0) on dp, none in 3`."""
    tensors = [tensor for at in placement.held if at != NOWHERE for tensor in cluster.holdings[at]]
    kinds = list(dict.fromkeys(tensor.placement or "plain" for tensor in tensors))
    return f"{format_bytes(placement.bytes)} in {counted(len(tensors), 'tensor')}; {' | '.join(kinds[:3])}"


def _rank_row(rank: Rank) -> tuple[str, ...]:
    step = "" if rank.step < 0 else f"step {rank.step}"
    return in_words(runs_of([rank.number])), rank.state, step, rank.note


def _stack_lines(cluster: Cluster, rank: Rank) -> Iterator[str]:
    """Where a rank is, and the collective in which it waits."""
    if rank.stack != NOWHERE:
        yield f"  rank {rank.number} is at"
        for site in cluster.stacks[rank.stack][-_MOST_LINES:]:
            yield f"    {site_words(site)}  {first_line(site)}"
    if rank.collective is not None and not rank.collective.finished:
        collective = rank.collective
        since = f" for {format_seconds(collective.seconds)}" if collective.seconds else ""
        yield f"  rank {rank.number} waits{since} in {collective.kind} number {collective.sequence} of group {collective.group}"
