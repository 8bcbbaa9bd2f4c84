"""rank-lost: ranks lost their connection to a rank that raised no exception.

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
from devwidget.extras.ranks.rules.waiting.rank_raised import find_hanging, lost_another, raised_itself, select_first
from devwidget.records.finding import Finding, Fix, RankRole
from devwidget.records.schema.message import Message

_ENDINGS = {
    "dead": Message("ended without a final report"),
    "terminated": Message("ended by a signal"),
    "unknown": Message("left no final report"),
}
_FIXES = {
    "dead": Message("look for what killed its process in the logs of its machine, such as dmesg, or of the job"),
    "terminated": Message("look for the sender of the signal in the logs of the launcher or the job"),
    "unknown": Message("look for its process on its machine, and in its output"),
}


@cluster_rule("rank-lost")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for all lost ranks; none if an exception is the cause, or a collective names them already."""
    lost = list(filter(lost_another, cluster.ranks))
    if not lost or any(map(raised_itself, cluster.ranks)):
        return
    if any(different_collectives.check(cluster)):
        # Which ends the process of a rank that gets what it does not expect, mostly not the one that does otherwise.
        return
    gone = _find_gone(cluster, lost)
    if gone and not find_hanging(cluster, numbers_of(gone)):
        yield _make_finding(gone, lost)


def _find_gone(cluster: Cluster, lost: list[Rank]) -> list[Rank]:
    """Return the ranks that ended before the others lost them, else those without a report."""
    first = min(rank.said.taken for rank in lost)
    before = [rank for rank in cluster.in_state("terminated") if rank.said.taken <= first]
    return cluster.in_state("dead") or select_first(before) or cluster.in_state("stale", "unknown")


def _make_finding(gone: list[Rank], lost: list[Rank]) -> Finding:
    numbers = tuple(numbers_of(gone))
    facts = {"ranks": format_rank_ranges(numbers), "others": name_ranks(lost)}
    state = gone[0].state if gone[0].state in _ENDINGS else "unknown"
    roles: tuple[RankRole, ...] = (RankRole("absent", how=state, ranks=numbers),)
    if state == "terminated":
        roles = answered(numbers)
    return Finding(
        "rank-lost", "error", None, Message("{ranks} {how}, and {others} lost their connection", how=_ENDINGS[state], **facts),
        Message("a connection closes when the process at its other end has ended"),
        fixes=(Fix(_FIXES[state], "", "choice"),),
        notes=tuple(rank.note for rank in gone[:3] if rank.note),
        roles=(*roles, *answered_by(lost)),
    )  # fmt: skip
