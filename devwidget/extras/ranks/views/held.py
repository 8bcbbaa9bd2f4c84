"""What holds a job up: each collective that does not end once, who came, who did not, and who waits for those."""

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
"""Collectives of which that is drawn."""


@dataclass(frozen=True, slots=True)
class HeldRanks:
    """Ranks that stand at one place of a wait.

    Attributes:
        role: absent: they have not come, or have gone. unknown: nothing tells whether they came. waiting: they came. behind:
            they wait in other collectives for those.
        ranks: which ones.
        first: the lowest.
        state: of that one.
        site: the user's line where it is; None where it has not said.
        seconds: the longest that one of them has waited.
    """

    role: Role
    ranks: Runs
    first: int
    state: str
    site: Site | None
    seconds: float


@dataclass(frozen=True, slots=True)
class HeldCollective:
    """One collective that does not end.

    Attributes:
        collective: as the first that waits tells of it.
        came: how many of its ranks have begun it.
        rows: those that hold it up first.
    """

    collective: Collective
    came: int
    rows: tuple[HeldRanks, ...]


def find_held(cluster: Cluster) -> tuple[HeldCollective, ...]:
    """What the findings say of ranks that wait for others."""
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
    """One row for all that wait; those that hold them up by where they are."""
    apart = role in ("absent", "unknown")
    for same in group_by(ranks, lambda rank: (rank.state, rank.said.stack) if apart else None).values():
        numbers = numbers_of(same)
        seconds = max((rank.said.collective.seconds for rank in same if rank.said.collective is not None), default=0.0)
        yield HeldRanks(role, runs_of(numbers), numbers[0], same[0].state, same[0].line, seconds)
