"""Claims about ranks, held against what each of them answered: nobody is spoken of who was not heard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from devwidget.extras.ranks.records.cluster import Cluster, Rank
from devwidget.records.finding import Claim, ClaimKind, Finding
from devwidget.records.runs import format_runs, runs_of
from devwidget.records.schema.message import Message

_GONE = frozenset({"dead", "stopped", "ended"})


def words_of(claim: Claim) -> str:
    """The sentence of a claim."""
    count, ranks = len(claim.ranks), format_runs(runs_of(claim.ranks))
    match claim.kind:
        case "answered":
            return Message("{ranks} answered", ranks=ranks)
        case "absent":
            return Message("{ranks}: {why}", ranks=ranks, why=Message(claim.how))
        case "behind":
            return Message.of(
                count, "{ranks} waits too, in another collective", "{ranks} wait too, in other collectives", ranks=ranks
            )
    facts = {"ranks": ranks, "kind": claim.call, "number": claim.count, "group": claim.name}
    if claim.how == "before":
        return Message("{ranks} waited in `{kind}` number {number} of `{group}`", **facts)
    return Message.of(
        count, "{ranks} waits in `{kind}` number {number} of `{group}`",
        "{ranks} wait in `{kind}` number {number} of `{group}`", **facts,
    )  # fmt: skip


def answered(ranks: Iterable[int]) -> tuple[Claim, ...]:
    """The claim that these ranks were asked and have said what they hold and do."""
    return (Claim("answered", ranks=tuple(ranks)),)


def without_unheard(cluster: Cluster, findings: Iterable[Finding]) -> tuple[list[Finding], list[Message]]:
    """The findings of which every claim is borne out; for the others, why they cannot be told."""
    kept: list[Finding] = []
    left_out: list[Message] = []
    for finding in findings:
        if all(is_borne_out(cluster, claim) for claim in finding.claims):
            kept.append(finding)
        else:
            reason = Message("what it would say is not borne out by what was seen")
            left_out.append(Message("{kind}: {reason}", kind=finding.kind, reason=reason))
    return kept, left_out


def is_borne_out(cluster: Cluster, claim: Claim) -> bool:
    """Whether all that a claim needs was heard; tests put in its place what raises where it was not."""
    return not refutes(cluster, claim)


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
