"""TracedStep: what one rank did in a step; TracedJob: the steps of all ranks, those that did the same told once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from devwidget.records.parallel import UNKNOWN, CollectiveCall, ProcessGroup
from devwidget.records.runs import Runs, runs_of
from devwidget.records.schema.fields import Size


@dataclass(frozen=True, slots=True)
class TracedStep:
    """What one rank did while it was recorded.

    Attributes:
        collectives: that it began, in order.
        groups: the process groups of them.
    """

    collectives: tuple[CollectiveCall, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class TracedKind:
    """What all ranks of one kind did.

    Attributes:
        ranks: which ranks these are.
        step: what the lowest of them did, and its process groups: others of the kind have others of the same names.
    """

    ranks: Runs
    step: TracedStep


@dataclass(frozen=True, slots=True)
class TracedRank:
    """One rank.

    Attributes:
        number: in the job.
        kind: its place in `TracedJob.kinds`.
        groups: for each group of the step of its kind the place of its own in `TracedJob.groups`.
    """

    number: Size
    kind: Size
    groups: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class TracedJob:
    """One step of a job.

    Attributes:
        ranks: those that recorded it, by number.
        kinds: each different step once, that of the lowest rank first.
        groups: the process groups of all of them.
    """

    ranks: tuple[TracedRank, ...]
    kinds: tuple[TracedKind, ...]
    groups: tuple[ProcessGroup, ...]


def merge_steps(steps: Mapping[int, TracedStep]) -> TracedJob | None:
    """The steps of ranks by their numbers as one record; None of none."""
    if not steps:
        return None
    kinds: dict[Any, int] = {}
    groups: dict[ProcessGroup, int] = {}
    ranks = []
    alike: list[list[int]] = []
    for number, step in sorted(steps.items()):
        kind = kinds.setdefault(_kind_key(step, number), len(kinds))
        if kind == len(alike):
            alike.append([])
        alike[kind].append(number)
        own = tuple(groups.setdefault(group, len(groups)) for group in step.groups)
        ranks.append(TracedRank(number, kind, own))
    return TracedJob(tuple(ranks), tuple(TracedKind(runs_of(numbers), steps[numbers[0]]) for numbers in alike), tuple(groups))


def split_steps(job: TracedJob) -> dict[int, TracedStep]:
    """The step of each rank, from which `merge_steps` makes the same job."""
    return {rank.number: _step_of_rank(job, rank) for rank in job.ranks}


def _step_of_rank(job: TracedJob, rank: TracedRank) -> TracedStep:
    """That of the lowest rank of its kind, with its own groups, and its own peers in them."""
    step = job.kinds[rank.kind].step
    calls = tuple(replace(call, peer=find_peer(job, rank, call)) for call in step.collectives)
    groups = tuple(job.groups[group] for group in rank.groups)
    return TracedStep(calls, groups)


def find_peer(job: TracedJob, rank: TracedRank, call: CollectiveCall) -> int:
    """The other end of a message of a rank: as far from it as from the lowest rank of its kind, whose call this is."""
    kind = job.kinds[rank.kind]
    distance = ring_distance(kind.step.groups[call.group], kind.ranks[0][0], call.peer)
    own = job.groups[rank.groups[call.group]].ranks
    if distance == UNKNOWN or rank.number not in own:
        return UNKNOWN
    return own[(own.index(rank.number) + distance) % len(own)]


def _kind_key(step: TracedStep, rank: int) -> Any:
    """What ranks of a kind have in common: not which ranks are in their groups, nor the places in their traces."""
    groups = tuple((group.label, len(group.ranks)) for group in step.groups)
    calls = tuple(
        replace(call, number=0, peer=ring_distance(step.groups[call.group], rank, call.peer)) for call in step.collectives
    )
    return groups, calls


def ring_distance(group: ProcessGroup, rank: int, peer: int) -> int:
    """How many places after a rank another stands in a group, around its end: ranks that pass on in a ring are of one kind."""
    if rank not in group.ranks or peer not in group.ranks:
        return UNKNOWN
    return (group.ranks.index(peer) - group.ranks.index(rank)) % len(group.ranks)
