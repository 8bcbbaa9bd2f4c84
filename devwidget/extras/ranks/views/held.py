"""What blocks a job: each unfinished collective once, with the ranks that reached it, that did not, and that wait for these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from devwidget.extras.ranks.records.cluster import Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.rank import Collective
from devwidget.records.finding import Finding, RankRole
from devwidget.records.runs import Runs, runs_of
from devwidget.records.site import Site

Role = Literal["absent", "unknown", "waiting", "behind"]
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

    role: Role
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
        held = _find_one(cluster, finding)
        if held is not None:
            found.append(held)
    return tuple(found[:MOST_HELD])


def _find_one(cluster: Cluster, finding: Finding) -> HeldCollective | None:
    roles: dict[str, RankRole] = {role.kind: role for role in finding.roles}
    if not {"waiting", "absent"} <= roles.keys():
        return None
    collective = cluster.ranks[roles["waiting"].ranks[0]].said.collective
    if collective is None:
        return None
    rows: list[HeldRanks] = []
    for role, ranks in _cast(cluster, roles):
        rows += _describe(role, ranks)
    return HeldCollective(collective, len(roles["waiting"].ranks), tuple(rows))


def _cast(cluster: Cluster, told: dict[str, RankRole]) -> Iterator[tuple[Role, list[Rank]]]:
    missing: Role = "unknown" if told["absent"].how == "unknown" else "absent"
    roles: tuple[tuple[Role, str], ...] = ((missing, "absent"), ("waiting", "waiting"), ("behind", "behind"))
    for role, kind in roles:
        if kind in told:
            yield role, cluster.select(told[kind].ranks)


def _describe(role: Role, ranks: list[Rank]) -> Iterator[HeldRanks]:
    """Yield one row for all waiting ranks, and rows for those that block them by place."""
    apart = role in ("absent", "unknown")
    for same in group_by(ranks, lambda rank: (rank.state, rank.said.stack) if apart else None).values():
        numbers = numbers_of(same)
        seconds = max((rank.said.collective.seconds for rank in same if rank.said.collective is not None), default=0.0)
        yield HeldRanks(role, runs_of(numbers), numbers[0], same[0].state, same[0].line, seconds)
