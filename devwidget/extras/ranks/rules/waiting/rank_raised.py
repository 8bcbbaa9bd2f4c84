"""rank-raised: an uncaught exception ended a rank, and with it the job.

Why: the other ranks wait for its collectives until they lose the connection or are terminated too.
Bad: a batch that only one rank gets fails there.
Good: fix the line that raised first; the saved states of all ranks name it.
Source: https://docs.pytorch.org/docs/stable/elastic/errors.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devwidget.extras.ranks.records.cluster import Cluster, Rank, group_by, innermost_own, numbers_of
from devwidget.extras.ranks.rules.over_ranks import answered_by, cluster_rule, name_ranks
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site

_LONGEST = 200


@cluster_rule("rank-raised")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each exception that ranks raised first, with the later ones in its notes."""
    raised = list(filter(raised_itself, cluster.ranks))
    first = select_first(raised)
    for (error, line), ranks in group_by(first, _error_and_line).items():
        later = [rank for rank in raised if rank not in first]
        yield Finding(
            "rank-raised", "error", None,
            Message("{ranks} raised `{error}`", ranks=name_ranks(ranks), error=error),
            Message("the other ranks of its group wait in the collectives that it no longer calls"),
            fault=line,
            fixes=(Fix(Message("fix this line first"), "", "choice"),),
            notes=tuple(_consequences(cluster, ranks, later)),
            roles=answered_by(ranks),
        )  # fmt: skip


def _error_and_line(rank: Rank) -> tuple[str, Site | None]:
    word = rank.said.last_word
    assert word is not None
    error = word.error.strip().partition("\n")[0]
    return error[:_LONGEST], innermost_own(word.stack)


def _consequences(cluster: Cluster, ranks: list[Rank], later: list[Rank]) -> Iterator[str]:
    if hanging := find_hanging(cluster, numbers_of(ranks)):
        yield Message("waiting for it: {ranks}", ranks=name_ranks(hanging))
    if lost := list(filter(lost_another, cluster.ranks)):
        yield Message("then lost their connection: {ranks}", ranks=name_ranks(lost))
    if later:
        yield Message("raised later: {ranks}", ranks=name_ranks(later))
    if ended := cluster.in_state("terminated"):
        yield Message("ended by a signal: {ranks}", ranks=name_ranks(ended))


_OF_TRANSPORT = (
    *("connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "socket timeout"),
    *("timed out waiting", "pair closure", "connection was likely closed", "got 0 bytes", "remote process exited"),
    *("communicator was aborted", "collective operation timeout", "distnetworkerror", "diststoreerror"),
    *("distbackenderror", "store is not available"),
)
"""Errors of torch, gloo and NCCL when another rank has ended or did not come in time."""
_AT_ONCE = 1.0
"""Seconds by which clocks of two machines, or exceptions with one cause, may differ."""


def lost_another(rank: Rank) -> bool:
    """Return whether the exception of a rank says that another one has ended or did not come."""
    word = rank.said.last_word
    return word is not None and word.how == "raised" and any(each in word.error.lower() for each in _OF_TRANSPORT)


def raised_itself(rank: Rank) -> bool:
    """Return whether a rank raised another exception."""
    return rank.state == "raised" and rank.said.last_word is not None and not lost_another(rank)


def select_first(ranks: Iterable[Rank]) -> list[Rank]:
    """Return the ranks that reported first, within the tolerance of clocks and causes."""
    told = list(ranks)
    first = min((rank.said.taken for rank in told), default=0.0)
    return [rank for rank in told if rank.said.taken <= first + _AT_ONCE]


def find_hanging(cluster: Cluster, absent: Iterable[int]) -> list[Rank]:
    """Return the ranks that hang in a collective of one of these."""
    found = []
    for rank in cluster.ranks:
        waits = rank.said.waits
        if rank.hangs and waits and not set(absent).isdisjoint(waits.ranks):
            found.append(rank)
    return found
