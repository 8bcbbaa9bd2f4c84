"""As `tests.strict_sentences`, of what findings over ranks say: nobody is spoken of who was not heard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from devwidget.extras.ranks.records.cluster import Cluster, Rank
from devwidget.records.finding import Finding, RankRole, RoleKind
from devwidget.records.schema.message import Message
from devwidget.rules.registry import run_rule
from tests.strict_sentences import Unfounded


def run_strictly(kind: str, check: Callable[[Any], Any], cluster: Cluster) -> tuple[list[Finding], Message | None]:
    """What one rule found, of which every role is borne out."""
    found, crash = run_rule(kind, check, cluster)
    for role in (role for finding in found for role in finding.roles):
        problem = refutes(cluster, role)
        if problem:
            raise Unfounded(f"{kind}: {problem}; {role}")
    return found, crash


_GONE = frozenset({"dead", "stopped", "ended"})


def refutes(cluster: Cluster, role: RankRole) -> str:
    """What is not borne out of a role; "" if all is."""
    known = {rank.number: rank for rank in cluster.ranks}
    missing = [number for number in role.ranks if number not in known]
    if missing or not role.ranks:
        return f"the job has no rank {missing}"
    return next((problem for number in role.ranks for problem in REQUIRED[role.kind](role, known[number])), "")


def _answered(role: RankRole, rank: Rank) -> Iterator[str]:
    """Each of these ranks was asked, or has left a file, and has said what it holds or does."""
    if rank.state == "unknown":
        yield f"rank {rank.number} was not heard"


def _waiting(role: RankRole, rank: Rank) -> Iterator[str]:
    """Each of these ranks has said that it is inside the collective of this group and number, and has not left it."""
    held = rank.said.waits
    if held is None or (held.group, held.sequence) != (role.name, role.count):
        yield f"rank {rank.number} has not said that it waits there"


def _absent(role: RankRole, rank: Rank) -> Iterator[str]:
    """Each process was looked for and is gone, or is stopped; or the rank has said how far it has come in the group, and that
    is less; or nothing that was heard of it tells."""
    if role.how in _GONE:
        if rank.state != role.how:
            yield f"rank {rank.number} is {rank.state}"
    elif role.how == "not begun" and (rank.state == "unknown" or not (rank.said.groups or rank.said.collective)):
        yield f"rank {rank.number} has not said how far it has come"


def _behind(role: RankRole, rank: Rank) -> Iterator[str]:
    """Each of these ranks has said that it is inside some collective, and has not left it."""
    if rank.said.waits is None:
        yield f"rank {rank.number} has not said that it waits"


REQUIRED: dict[RoleKind, Callable[[RankRole, Rank], Iterator[str]]] = {
    "answered": _answered,
    "waiting": _waiting,
    "absent": _absent,
    "behind": _behind,
}
"""What must have been heard of each rank for each kind of role."""
