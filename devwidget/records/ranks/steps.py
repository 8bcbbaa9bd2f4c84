"""One step of a rank out of its trace, and one job out of the steps of its ranks."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from devwidget.records.parallel import UNKNOWN, ProcessGroup
from devwidget.records.ranks.runs import runs_of
from devwidget.records.ranks.traced import ModuleSpan, TracedJob, TracedKind, TracedRank, TracedStep
from devwidget.records.trace import Trace

MOST_MODULES = 2_000
"""Of a step; deeper ones are left out first."""


def step_of(trace: Trace) -> TracedStep:
    """What of a trace is told of all ranks together."""
    chosen = trace.modules
    if len(chosen) > MOST_MODULES:
        chosen = tuple(sorted(chosen, key=lambda event: (event.path.count("."), event.number))[:MOST_MODULES])
    spans = (ModuleSpan(each.path, each.class_name, each.number, max(each.stopped, each.number)) for each in chosen)
    events: list[Any] = [*trace.ops, *trace.collectives]
    phases = itertools.groupby(sorted((each.number, each.phase) for each in events), key=lambda each: each[1])
    return TracedStep(
        tuple(sorted(spans, key=lambda span: (span.start, -span.stop))), trace.collectives, trace.groups,
        tuple((phase, next(run)[0]) for phase, run in phases), trace.seconds, trace.error,
    )  # fmt: skip


def job_of(steps: Mapping[int, TracedStep]) -> TracedJob | None:
    """The steps of ranks by their numbers as one record; None of none."""
    if not steps:
        return None
    kinds: dict[Any, int] = {}
    groups: dict[ProcessGroup, int] = {}
    ranks = []
    for number, step in sorted(steps.items()):
        kind = kinds.setdefault(_what(step, number), len(kinds))
        own = tuple(groups.setdefault(group, len(groups)) for group in step.groups)
        ranks.append(TracedRank(number, kind, own, step.seconds, step.error))
    alike = [[rank.number for rank in ranks if rank.kind == kind] for kind in kinds.values()]
    return TracedJob(tuple(ranks), tuple(TracedKind(runs_of(numbers), steps[numbers[0]]) for numbers in alike), tuple(groups))


def _what(step: TracedStep, rank: int) -> Any:
    """What ranks of a kind have in common: not which ranks are in their groups, nor the places in their traces."""
    groups = tuple((group.label, len(group.ranks)) for group in step.groups)
    modules = tuple((span.path, span.class_name) for span in step.modules)
    edges = sorted(edge for span in step.modules for edge in (span.start, span.stop))
    calls = tuple(
        replace(call, number=bisect.bisect(edges, call.number), peer=distance(step.groups[call.group], rank, call.peer))
        for call in step.collectives
    )
    return modules, groups, calls


def distance(group: ProcessGroup, rank: int, peer: int) -> int:
    """How many places after a rank another stands in a group, around its end: ranks that pass on in a ring are of one kind."""
    if rank not in group.ranks or peer not in group.ranks:
        return UNKNOWN
    return (group.ranks.index(peer) - group.ranks.index(rank)) % len(group.ranks)
