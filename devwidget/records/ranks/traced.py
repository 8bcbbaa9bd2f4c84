"""TracedStep: what one rank did in a step; TracedJob: the steps of all ranks, those that did the same told once."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.parallel import CollectiveCall, ProcessGroup
from devwidget.records.phase import Phase
from devwidget.records.ranks.runs import Runs
from devwidget.records.schema.bounds import Duration, Size


@dataclass(frozen=True, slots=True)
class ModuleSpan:
    """The first call of a module, from one place in the trace to another."""

    path: str
    class_name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class TracedStep:
    """What one rank did while it was recorded.

    Attributes:
        modules: that ran, in order.
        collectives: that it began, in order.
        groups: the process groups of them.
        phases: `(phase, place in the trace)` of each part of the step, in order.
        seconds: wall time.
        error: the exception that ended it, "" if none did.
    """

    modules: tuple[ModuleSpan, ...] = ()
    collectives: tuple[CollectiveCall, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    phases: tuple[tuple[Phase, int], ...] = ()
    seconds: Duration = 0.0
    error: str = ""


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
        seconds: wall time of its step.
        error: the exception that ended it, "" if none did.
    """

    number: Size
    kind: Size
    groups: tuple[Size, ...]
    seconds: Duration = 0.0
    error: str = ""


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
