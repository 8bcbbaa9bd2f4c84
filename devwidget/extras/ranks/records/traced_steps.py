"""TracedStep: the collectives of one rank in a step; TracedJob: the collectives of all ranks, equal steps once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from devwidget.records.parallel import UNKNOWN, CollectiveCall, ProcessGroup
from devwidget.records.runs import Runs, runs_of
from devwidget.records.schema.fields import Size


@dataclass(frozen=True, slots=True)
class TracedStep:
    """The collectives that one rank called in a recording, in order, and their process groups."""

    collectives: tuple[CollectiveCall, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class TracedKind:
    """Ranks with the same collectives: the step of the lowest of them; the others have other groups of the same names."""

    ranks: Runs
    step: TracedStep


@dataclass(frozen=True, slots=True)
class TracedRank:
    """One rank.

    Attributes:
        number: Its number in the job.
        kind: Its index in `TracedJob.kinds`.
        groups: For each group of the step of its kind the index of its own in `TracedJob.groups`.
    """

    number: Size
    kind: Size
    groups: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class TracedJob:
    """One step of a job: the ranks that recorded it, by number, each distinct step once, and all process groups."""

    ranks: tuple[TracedRank, ...]
    kinds: tuple[TracedKind, ...]
    groups: tuple[ProcessGroup, ...]


def merge_steps(steps: Mapping[int, TracedStep]) -> TracedJob | None:
    """Combine the steps of ranks to one record; None without steps."""
    if not steps:
        return None
    kinds: dict[Any, tuple[int, list[int]]] = {}
    groups: dict[ProcessGroup, int] = {}
    ranks = []
    for number, step in sorted(steps.items()):
        kind, alike = kinds.setdefault(_kind_key(step, number), (len(kinds), []))
        alike.append(number)
        own = tuple(groups.setdefault(group, len(groups)) for group in step.groups)
        ranks.append(TracedRank(number, kind, own))
    found = (TracedKind(runs_of(alike), steps[alike[0]]) for _, alike in kinds.values())
    return TracedJob(tuple(ranks), tuple(found), tuple(groups))


def split_steps(job: TracedJob) -> dict[int, TracedStep]:
    """Return the step of each rank, from which `merge_steps` makes the same job."""
    return {rank.number: _step_of_rank(job, rank) for rank in job.ranks}


def _step_of_rank(job: TracedJob, rank: TracedRank) -> TracedStep:
    """Return the step of the lowest rank of its kind, with this rank's groups and peers."""
    step = job.kinds[rank.kind].step
    calls = tuple(replace(call, peer=find_peer(job, rank, call)) for call in step.collectives)
    groups = tuple(job.groups[group] for group in rank.groups)
    return TracedStep(calls, groups)


def find_peer(job: TracedJob, rank: TracedRank, call: CollectiveCall) -> int:
    """Return the other end of a message of a rank: at the same distance as for the lowest rank of its kind."""
    kind = job.kinds[rank.kind]
    distance = ring_distance(kind.step.groups[call.group], kind.ranks[0][0], call.peer)
    own = job.groups[rank.groups[call.group]].ranks
    if distance == UNKNOWN or rank.number not in own:
        return UNKNOWN
    return own[(own.index(rank.number) + distance) % len(own)]


def _kind_key(step: TracedStep, rank: int) -> Any:
    """Return what ranks of a kind have in common, without the members of their groups and the places in their traces."""
    groups = tuple((group.label, len(group.ranks)) for group in step.groups)
    calls = tuple(
        replace(call, number=0, peer=ring_distance(step.groups[call.group], rank, call.peer)) for call in step.collectives
    )
    return groups, calls


def ring_distance(group: ProcessGroup, rank: int, peer: int) -> int:
    """Return the distance from a rank to another in a group, around its end: ranks that pass on in a ring are one kind."""
    if rank not in group.ranks or peer not in group.ranks:
        return UNKNOWN
    return (group.ranks.index(peer) - group.ranks.index(rank)) % len(group.ranks)
