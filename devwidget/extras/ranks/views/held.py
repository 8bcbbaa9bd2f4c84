"""What blocks a job: each unfinished collective once, with the ranks that reached it, that did not, and that wait for these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from devwidget.extras.ranks.records.cluster import Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.rank import Collective
from devwidget.records.finding import RankRole
from devwidget.records.runs import Runs, runs_of
from devwidget.records.site import Site

MOST_HELD = 4
"""Collectives that are drawn."""


@dataclass(frozen=True, slots=True)
class HeldRanks:
    """Ranks at one place of a wait.

    Attributes:
        role: absent: they did not reach it or have ended. unknown: it is unknown whether they did. waiting: they reached it.
            behind: they wait in other collectives for these.
        ranks: Numbers of the ranks.
        first: Lowest of them.
        state: State of the lowest.
        site: The user's line of the lowest; None if unknown.
        seconds: Longest wait.
    """

    role: str
    ranks: Runs
    first: int
    state: str
    site: Site | None
    seconds: float


@dataclass(frozen=True, slots=True)
class HeldCollective:
    """One unfinished collective.

    Attributes:
        collective: The collective as the first waiting rank reports it.
        came: Number of its ranks that called it.
        rows: Rows, those that block it first.
    """

    collective: Collective
    came: int
    rows: tuple[HeldRanks, ...]


def find_held(cluster: Cluster) -> tuple[HeldCollective, ...]:
    """Return what the findings say of waiting ranks."""
    found = []
    for finding in cluster.findings:
        roles: dict[str, RankRole] = {role.kind: role for role in finding.roles}
        if not {"waiting", "absent"} <= roles.keys():
            continue
        came = cluster.select(roles["waiting"].ranks)
        rows: list[HeldRanks] = []
        for kind in ("absent", "waiting", "behind"):
            if kind in roles:
                rows += _list_rows(roles[kind], cluster.select(roles[kind].ranks))
        if came[0].said.collective is not None:
            found.append(HeldCollective(came[0].said.collective, len(came), tuple(rows)))
    return tuple(found[:MOST_HELD])


def _list_rows(role: RankRole, ranks: list[Rank]) -> Iterator[HeldRanks]:
    """Yield one row for all waiting ranks, and rows for those that block them by place."""
    blocks, name = role.kind == "absent", str(role.kind)
    if role.how == "unknown":
        name = "unknown"
    for same in group_by(ranks, lambda rank: (rank.state, rank.said.stack) if blocks else None).values():
        numbers = numbers_of(same)
        seconds = max((rank.said.collective.seconds for rank in same if rank.said.collective is not None), default=0.0)
        yield HeldRanks(name, runs_of(numbers), numbers[0], same[0].state, same[0].line, seconds)
