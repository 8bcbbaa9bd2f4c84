"""slow-rank: the other ranks wait for one rank, step after step.

Why: a collective completes when the last rank calls it, so a step takes as long as the slowest rank.
Bad: one rank reads data from another disk, writes all logs and checkpoints, or shares its CPU cores.
Good: spread that work over all ranks, or do it in another thread.
Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import NOWHERE, Arrivals, Cluster, Rank, group_by
from devwidget.extras.ranks.rules.over_ranks import answered, cluster_rule
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

LEAST_COLLECTIVES, LEAST_SHARE, LEAST_PART = 8, 0.2, 0.85
"""With fewer waits the last rank is random; less than a fifth of the time varies with other programs; and a slow rank is last
nearly every time that the others wait."""
_LEFT_OUT = 2
"""Longest waits for a rank that do not count: a pause of the whole machine or of Python does not make a rank slow."""


@cluster_rule("slow-rank")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each group whose ranks wait for one of them."""
    largest = max((each.count for each in cluster.arrivals), default=0)
    for name, arrivals in group_by(cluster.arrivals, lambda each: each.group).items():
        if len(arrivals) >= LEAST_COLLECTIVES and arrivals[0].count == largest:
            yield from _judge_group(cluster, name, arrivals)


def _judge_group(cluster: Cluster, name: str, arrivals: list[Arrivals]) -> Iterator[Finding]:
    span = arrivals[-1].begun - arrivals[0].begun
    # A delay much shorter than the time between collectives does not count as a wait.
    least = span / len(arrivals) / 10
    waits: dict[int, list[float]] = {}
    for each in arrivals:
        if each.seconds > least:
            waits.setdefault(each.last, []).append(each.seconds)
    slowest = max(waits, key=lambda rank: sum(waits[rank]), default=NOWHERE)
    if slowest == NOWHERE:
        return
    times, all_times = len(waits[slowest]), sum(map(len, waits.values()))
    share = 0.0
    if span:
        share = sum(sorted(waits[slowest])[:-_LEFT_OUT]) / span
    if share >= LEAST_SHARE and times >= max(LEAST_COLLECTIVES, LEAST_PART * all_times):
        yield _make_finding(cluster.ranks[slowest], name, share, times, all_times)


def _make_finding(rank: Rank, group: str, share: float, times: int, all_times: int) -> Finding:
    facts = {"times": times, "all": all_times, "group": group}
    return Finding(
        "slow-rank", "warning", None,
        Message("the other ranks wait for rank {rank} for {share} % of the time", share=round(100 * share), rank=rank.number),
        Message("a collective completes once the last rank of its group has called it"),
        fault=rank.line if rank.said.waits is None else None,
        fixes=(Fix(_choose_cure(rank), "", "choice"),),
        notes=(
            Message("{times} of the last {all} waits for a single rank in `{group}` were for it", **facts),
            Message("this compares when each Python process began a collective, not the speed of its GPU"),
        ),
        roles=answered([rank.number]),
    )  # fmt: skip


_CURES = (
    (("torch/utils/data/",), Message("give its loader more workers, or check the disk that it reads")),
    (
        ("torch/serialization.py", "torch/distributed/checkpoint/"),
        Message("write checkpoints from another thread, or from all ranks"),
    ),
)
"""Where the innermost line is, and the fix for it."""


def _choose_cure(rank: Rank) -> str:
    files = [site.file.replace("\\", "/") for site in rank.said.stack]
    for parts, cure in _CURES:
        if any(part in file for part in parts for file in files):
            return cure
    return Message("look for what only this rank does, such as data loading, logs, checkpoints, or another job on its machine")
