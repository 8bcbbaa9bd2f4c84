"""How ranks have ended: of their own, or because another had gone."""

from __future__ import annotations

from collections.abc import Iterable

from devwidget.extras.ranks.records.cluster import Cluster, Rank

_OF_TRANSPORT = (
    *("connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "socket timeout"),
    *("timed out waiting", "pair closure", "connection was likely closed", "got 0 bytes", "remote process exited"),
    *("communicator was aborted", "collective operation timeout", "distnetworkerror", "diststoreerror"),
    *("distbackenderror", "store is not available"),
)
"""What torch, gloo and NCCL say where another rank has gone, or has not come in time."""
_AT_ONCE = 1.0
"""Seconds by which the clocks of two machines may differ, or one exception may be later than another of the same cause."""


def lost_another(rank: Rank) -> bool:
    """Whether the exception of a rank says that another one has gone, or did not come."""
    word = rank.said.last_word
    return word is not None and word.how == "raised" and any(each in word.error.lower() for each in _OF_TRANSPORT)


def raised_itself(rank: Rank) -> bool:
    """Whether a rank has raised something else."""
    return rank.state == "raised" and rank.said.last_word is not None and not lost_another(rank)


def select_first(ranks: Iterable[Rank]) -> list[Rank]:
    """Those that spoke first, within what clocks and causes may differ."""
    told = list(ranks)
    first = min((rank.said.taken for rank in told), default=0.0)
    return [rank for rank in told if rank.said.taken <= first + _AT_ONCE]


def find_hanging(cluster: Cluster, absent: Iterable[int]) -> list[Rank]:
    """Ranks that hang in a collective of one of these."""
    wanted = set(absent)
    return [rank for rank in cluster.ranks if rank.hangs and rank.said.waits and wanted & {*rank.said.waits.ranks}]
