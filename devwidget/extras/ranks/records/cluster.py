"""Cluster: all ranks of one job at one moment, equal ones told once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from devwidget.extras.ranks.records.rank import (
    Axis,
    Collective,
    GroupProgress,
    Holding,
    LastWord,
    PastCollective,
    RankMemory,
    RankModule,
    Setting,
    StepSettings,
)
from devwidget.extras.ranks.records.traced_steps import TracedJob
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.runs import Runs
from devwidget.records.schema.fields import Duration, ProcessLocal, Size, process_local
from devwidget.records.schema.record import Record
from devwidget.records.site import Site

State = Literal["answered", "hung", "busy", "stopped", "stale", "dead", "raised", "terminated", "ended", "unknown"]
"""answered: at once. hung: it answered, and waits in a collective with a rank that cannot come, or longer than is usual.
busy: alive, and gave no answer in time. stopped: by a signal. stale: its file is older than the others'. dead: its process has
gone without a last word. raised, terminated: its last word is an exception, or a signal that ends a process. ended: its last
word is that it came to its end. unknown: the job counts it, and nothing was heard of it here: it runs elsewhere, has not begun
to answer, or never served."""

WITH_LAST_WORD = frozenset({"raised", "terminated", "ended"})
"""States of ranks that have said how they ended."""
GONE = frozenset({"dead", *WITH_LAST_WORD})
"""States of ranks that begin no collective any more."""

NOWHERE = -1
"""In `held`: this rank does not have that module. In a rank: it has not said."""


IN_A_ROW = "rank"
"""The one axis of ranks that named no mesh."""


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """What the ranks of one kind hold: a column.

    Attributes:
        ranks: which ranks these are.
        held: for each module of the cluster its place in `Cluster.holdings`, or -1 where these ranks do not have it.
        bytes: of all that one of these ranks holds.
    """

    ranks: Runs
    held: tuple[int, ...]
    bytes: Size


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank, as it was when it was asked.

    Attributes:
        number: in the job.
        state: how it was.
        host: name of its machine; "" if nobody heard of it.
        pid: its number on that machine, 0 if nobody heard of it.
        coordinates: in the mesh, one for each axis of the cluster; () where it has not said.
        placement: its place in `Cluster.placements`, -1 where it has not said.
        device: where it keeps most of its model.
        local_rank: its number on its machine, -1 where nobody has said.
        age: seconds between what it said and the moment of asking.
        step: how many steps its optimizers have taken, -1 where nobody has counted.
        memory: one entry for each device that it has used.
        collective: the one in which it waits.
        groups: how far it has come in each process group.
        stack: its place in `Cluster.stacks`, -1 where it has not said.
        unsharded: paths of modules whose parameters FSDP had gathered.
        checksums: `(path, checksum)` of what was asked to be compared.
        note: why it is in this state, a phrase.
        stages: of a pipeline that it runs; () where it has not said.
        hangs: it waits in a collective, or waited in it at its end, for longer than is usual or for a rank that cannot come.
        last_word: how it ended, as it has said itself; None where it has not.
        spoke: when it said what is known of it, seconds since the epoch; 0 where nothing is known.
        settings: its place in `Cluster.settings`, -1 where it has not said.
        steps: its place in `Cluster.steps`, -1 where it has not said.
        sums: `(step, checksum)` of all that its `checksums` name, for some of its steps.
        checksums_step: after which step its `checksums` were taken; -1 where that is not known.
        last: collectives that it has begun, the newest last; kept of ranks that wait or have ended.
    """

    number: Size
    state: State
    host: str = ""
    pid: Size = 0
    coordinates: tuple[Size, ...] = ()
    placement: int = NOWHERE
    device: DeviceId | None = None
    local_rank: int = -1
    age: Duration = 0.0
    step: int = -1
    memory: tuple[RankMemory, ...] = ()
    collective: Collective | None = None
    groups: tuple[GroupProgress, ...] = ()
    stack: int = NOWHERE
    unsharded: tuple[str, ...] = ()
    checksums: tuple[tuple[str, str], ...] = ()
    note: str = ""
    stages: tuple[Size, ...] = ()
    hangs: bool = False
    last_word: LastWord | None = None
    spoke: float = 0.0
    settings: int = NOWHERE
    steps: int = NOWHERE
    sums: tuple[tuple[Size, str], ...] = ()
    checksums_step: int = -1
    last: tuple[PastCollective, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Who came last to one collective that all its ranks have begun, by clocks that can be compared.

    Attributes:
        group: name of the process group.
        sequence: its number in the group.
        kind: of collective.
        count: how many ranks have begun it.
        last: the rank that came last.
        seconds: between the last but one and the last.
        begun: when the first came, seconds since the epoch.
    """

    group: str
    sequence: Size
    kind: str
    count: Size
    last: Size
    seconds: Duration
    begun: float


@dataclass(frozen=True, slots=True)
class Cluster(Record):
    """All ranks of one job.

    Attributes:
        axes: of the mesh, outermost first; one axis `rank` for a job without a mesh.
        ranks: by number.
        modules: of all ranks together, in pre-order.
        holdings: each different holding of a module once.
        placements: each different placement of the whole model once, that of the lowest rank first.
        stacks: each different stack once, the innermost line last.
        findings: what only many ranks can show, worst first.
        asked: seconds since the epoch.
        checked: the rules that could decide.
        not_checked: `rule: why it could not decide`.
        traced: the step that its ranks have recorded; None if they have recorded none.
        older: ranks of other jobs that have left files in the same folder, and are none of these.
        settings: each different set of settings once.
        steps: each different run of settings by step once.
        arrivals: who came last to the collectives that all ranks of a group have begun, in their order.
    """

    axes: tuple[Axis, ...]
    ranks: tuple[Rank, ...]
    modules: tuple[RankModule, ...] = ()
    holdings: tuple[Holding, ...] = ()
    placements: tuple[RankPlacement, ...] = ()
    stacks: tuple[tuple[Site, ...], ...] = ()
    findings: tuple[Finding, ...] = ()
    asked: float = 0.0
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    traced: TracedJob | None = None
    older: Runs = ()
    settings: tuple[tuple[Setting, ...], ...] = ()
    steps: tuple[tuple[StepSettings, ...], ...] = ()
    arrivals: tuple[Arrivals, ...] = ()
    _asker: ProcessLocal[Callable[[], Cluster]] = process_local()

    def holding(self, placement: int, module: int) -> Holding | None:
        """What one module holds on the ranks of a placement; None where they do not have it."""
        at = self.placements[placement].held[module]
        return None if at == NOWHERE else self.holdings[at]


def line_of(cluster: Cluster, rank: Rank) -> Site | None:
    """The user's innermost line of a rank; the innermost of all may be a library's."""
    return innermost_own(cluster.stacks[rank.stack] if rank.stack != NOWHERE else ())


def innermost_own(stack: tuple[Site, ...]) -> Site | None:
    """The user's innermost line of a stack."""
    return next((site for site in reversed(stack) if not _is_installed(site.file)), None)


def _is_installed(file: str) -> bool:
    return re.search(r"/(site-packages|dist-packages|lib/python3\.\d+)/", file) is not None


def may_be_asked_again(cluster: Cluster, ask: Callable[[], Cluster]) -> Cluster:
    """The cluster, as one whose ranks can be asked once more in this process."""
    return replace(cluster, _asker=ProcessLocal(ask))


def asker_of(cluster: Cluster) -> Callable[[], Cluster] | None:
    """How its ranks are asked again; None for a record that was loaded or made by hand."""
    return cluster._asker.value
