"""As `tests.strict_sentences`, of what findings over ranks claim: nobody is spoken of who was not heard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from devwidget.extras.ranks.records.cluster import Cluster, Rank
from devwidget.records.finding import Claim, ClaimKind, Finding
from devwidget.records.schema.message import Message
from devwidget.rules.registry import run_rule
from tests.strict_sentences import Unfounded


def run_strictly(kind: str, check: Callable[[Any], Any], cluster: Cluster) -> tuple[list[Finding], Message | None]:
    """What one rule found, of which every claim is borne out."""
    found, crash = run_rule(kind, check, cluster)
    for claim in (claim for finding in found for claim in finding.claims):
        problem = refutes(cluster, claim)
        if problem:
            raise Unfounded(f"{kind}: {problem}; {claim}")
    return found, crash


_GONE = frozenset({"dead", "stopped", "ended"})


def refutes(cluster: Cluster, claim: Claim) -> str:
    """What is not borne out of a claim; "" if all is."""
    known = {rank.number: rank for rank in cluster.ranks}
    missing = [number for number in claim.ranks if number not in known]
    if missing or not claim.ranks:
        return f"the job has no rank {missing}"
    return next((problem for number in claim.ranks for problem in REQUIRED[claim.kind](claim, known[number])), "")


def _answered(claim: Claim, rank: Rank) -> Iterator[str]:
    """Each of these ranks was asked, or has left a file, and has said what it holds or does."""
    if rank.state == "unknown":
        yield f"rank {rank.number} was not heard"


def _waiting(claim: Claim, rank: Rank) -> Iterator[str]:
    """Each of these ranks has said that it is inside the collective of this group and number, and has not left it."""
    held = rank.said.waits
    if held is None or (held.group, held.sequence) != (claim.name, claim.count):
        yield f"rank {rank.number} has not said that it waits there"


def _absent(claim: Claim, rank: Rank) -> Iterator[str]:
    """Each process was looked for and is gone, or is stopped; or the rank has said how far it has come in the group, and that
    is less; or nothing that was heard of it tells."""
    if claim.how in _GONE:
        if rank.state != claim.how:
            yield f"rank {rank.number} is {rank.state}"
    elif claim.how == "not begun" and (rank.state == "unknown" or not (rank.said.groups or rank.said.collective)):
        yield f"rank {rank.number} has not said how far it has come"


def _behind(claim: Claim, rank: Rank) -> Iterator[str]:
    """Each of these ranks has said that it is inside some collective, and has not left it."""
    if rank.said.waits is None:
        yield f"rank {rank.number} has not said that it waits"


REQUIRED: dict[ClaimKind, Callable[[Claim, Rank], Iterator[str]]] = {
    "answered": _answered,
    "waiting": _waiting,
    "absent": _absent,
    "behind": _behind,
}
"""What must have been heard of each rank for each kind of claim."""
