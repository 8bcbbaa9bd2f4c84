"""How ranks ended: by themselves, or because another one had ended."""

from __future__ import annotations

from collections.abc import Iterable

from devwidget.extras.ranks.records.cluster import Cluster, Rank

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
    wanted = set(absent)
    return [rank for rank in cluster.ranks if rank.hangs and rank.said.waits and wanted & {*rank.said.waits.ranks}]
