"""rank-lost: ranks lost their connection to one that left no exception.

Why: a process that is killed (SIGKILL, out of memory) or crashes in C++ reports nothing.
Bad: every rank but one ends with `Connection closed by peer`, and each log blames the transport.
Good: look for the silent rank; `dmesg` or the Slurm log says what killed it.
Source: https://docs.pytorch.org/docs/stable/elastic/errors.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, Rank, numbers_of
from devwidget.extras.ranks.rules.over_ranks import answered, answered_by, cluster_rule, format_rank_ranges, name_ranks
from devwidget.extras.ranks.rules.waiting import different_collectives
from devwidget.extras.ranks.rules.waiting.endings import find_hanging, lost_another, raised_itself, select_first
from devwidget.records.finding import Finding, Fix, RankRole
from devwidget.records.schema.message import Message

_FIXES = {
    "dead": Message("see who has killed its process: the log of its machine, such as dmesg, or of the job"),
    "terminated": Message("see who has sent the signal: the log of the launcher or of the job"),
    "unknown": Message("look for its process on its machine, and for what its own output says"),
}


@cluster_rule("rank-lost")
def check(cluster: Cluster) -> Iterator[Finding]:
    """One finding for all ranks that have gone so; none where an exception is the cause, or a collective names them already."""
    lost = [rank for rank in cluster.ranks if lost_another(rank)]
    if not lost or any(raised_itself(rank) for rank in cluster.ranks):
        return
    if any(different_collectives.check(cluster)):
        # Which ends the process of a rank that gets what it does not expect, mostly not the one that does otherwise.
        return
    gone = _find_gone(cluster, lost)
    if gone and not find_hanging(cluster, numbers_of(gone)):
        yield _make_finding(gone, lost)


def _find_gone(cluster: Cluster, lost: list[Rank]) -> list[Rank]:
    """The ranks that are known to have gone before the others lost them, else those of which nothing was heard."""
    first = min(rank.said.taken for rank in lost)
    before = [rank for rank in cluster.in_state("terminated") if rank.said.taken <= first]
    return cluster.in_state("dead") or select_first(before) or cluster.in_state("stale", "unknown")


def _make_finding(gone: list[Rank], lost: list[Rank]) -> Finding:
    numbers = tuple(numbers_of(gone))
    state = gone[0].state
    facts = {"ranks": format_rank_ranges(numbers), "others": name_ranks(lost)}
    if state == "dead":
        told = Message("{ranks} ended without a last word, and {others} lost their connection", **facts)
    elif state == "terminated":
        told = Message("{ranks} ended by a signal, and {others} lost their connection", **facts)
    else:
        state = "unknown"
        told = Message("{ranks} left no last word, and {others} lost their connection", **facts)
    if state == "terminated":
        roles = answered(numbers)
    else:
        roles = (RankRole("absent", how=state, ranks=numbers),)
    return Finding(
        "rank-lost", "error", None, told,
        Message("a connection is closed when the process at its other end has gone"),
        fixes=(Fix(_FIXES[state], "", "choice"),),
        notes=tuple(rank.note for rank in gone[:3] if rank.note),
        roles=(*roles, *answered_by(lost)),
    )  # fmt: skip
