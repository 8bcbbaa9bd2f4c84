"""absent-from-collective: some ranks wait in a collective that others of its group have not begun.

Why: a collective ends when all ranks of its group have begun it; who is elsewhere, or gone, keeps all others waiting.
Bad: `if rank == 0: dist.barrier()`, or a rank that ended, or raised, or still loads its data.
Good: the same collectives in the same order on every rank.
Source: https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.ranks.cluster import NOWHERE, Cluster, Rank
from devwidget.records.ranks.rank import Collective
from devwidget.records.schema.message import Message, in_row
from devwidget.records.site import Site
from devwidget.rules.ranks.over_ranks import cluster_rule, grouped, told


@cluster_rule("absent-from-collective")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for each collective in which somebody waits longer than is usual."""
    for (group, members, sequence), ranks in waiting(cluster).items():
        if not any(rank.state == "hung" for rank in ranks):
            continue
        absent = [rank for rank in cluster.ranks if rank.number in members and _is_absent(rank, group, members, sequence)]
        if absent:
            yield _finding(cluster, ranks, absent)


def waiting(cluster: Cluster) -> dict[tuple[str, tuple[int, ...], int], list[Rank]]:
    """Ranks by the place where they wait: group, its ranks, number."""
    held = [rank for rank in cluster.ranks if rank.collective is not None and not rank.collective.finished]
    return grouped(held, lambda rank: _place(rank.collective))


def _place(collective: Collective | None) -> tuple[str, tuple[int, ...], int]:
    assert collective is not None
    return collective.group, collective.ranks, collective.sequence


def _is_absent(rank: Rank, group: str, members: tuple[int, ...], sequence: int) -> bool:
    """Whether a rank has certainly not begun it: it counts less, or cannot begin anything any more."""
    if rank.state in ("dead", "missing"):
        return True
    begun = [each.begun for each in rank.groups if each.name == group and each.first == members[0]]
    if rank.collective is not None and _place(rank.collective) == (group, members, sequence):
        return False
    return begun[0] < sequence if begun else rank.state in ("stopped", "busy")


def _finding(cluster: Cluster, ranks: list[Rank], absent: list[Rank]) -> Finding:
    first = ranks[0]
    collective = first.collective
    assert collective is not None
    seconds = max(rank.collective.seconds for rank in ranks if rank.collective is not None)
    facts = {"kind": collective.kind, "number": collective.sequence, "group": collective.group}
    who, others = told(rank.number for rank in ranks), told(rank.number for rank in absent)
    wait = (
        Message("{ranks} waits in `{kind}` number {number} of `{group}`", ranks=who, **facts)
        if len(ranks) == 1
        else Message("{ranks} wait in `{kind}` number {number} of `{group}`", ranks=who, **facts)
    )
    return Finding(
        "absent-from-collective", "error", None,
        Message("{wait}, which {others} has not begun", wait=wait, others=others)
        if len(absent) == 1
        else Message("{wait}, which {others} have not begun", wait=wait, others=others),
        Message("a collective ends when every rank of its group has begun it"),
        fault=line_of(cluster, first),
        birth=next(filter(None, (line_of(cluster, rank) for rank in absent)), None),
        fixes=(Fix(Message("see to it that every rank comes to this line as often as the others"), "", "choice"),),
        notes=(Message("they have waited for {seconds} s", seconds=round(seconds)), *_whereabouts(cluster, absent)),
    )  # fmt: skip


def line_of(cluster: Cluster, rank: Rank) -> Site | None:
    """The user's innermost line of a rank; the innermost of all may be a library's."""
    stack = cluster.stacks[rank.stack] if rank.stack != NOWHERE else ()
    return next((site for site in reversed(stack) if not _is_installed(site.file)), None)


def _is_installed(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file or "/lib/python" in file


def _whereabouts(cluster: Cluster, absent: list[Rank]) -> Iterator[str]:
    for (state, note, stack), ranks in grouped(absent, lambda rank: (rank.state, rank.note, rank.stack)).items():
        line = line_of(cluster, ranks[0]) if stack != NOWHERE else None
        at = Message("at {place}: {source}", place=str(line), source=line.text) if line is not None else ""
        how = in_row((Message(state), note, at))
        yield Message("{what}: {place}", what=told(rank.number for rank in ranks), place=how)
