"""Cluster: all ranks of one job at one moment."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from devwidget.extras.ranks.records.rank import Axis, RankReport
from devwidget.extras.ranks.records.traced_steps import TracedJob
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
"""Of a step, a rank, or a place that is not known."""
Item = TypeVar("Item")
Group = TypeVar("Group", bound=Hashable)
IN_A_ROW = "rank"
"""The one axis of ranks that named no mesh."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank when it was asked: how it was, and the newest that it has said.

    Attributes:
        state: how it was.
        said: by itself; of one that nobody heard of `silent_rank`.
        note: why it is in this state, and what a reader should know of it.
        hangs: it waits in a collective, or waited in it at its end, for longer than is usual or for a rank that cannot come.
    """

    state: State
    said: RankReport
    note: str = ""
    hangs: bool = False

    @property
    def number(self) -> int:
        """In the job."""
        return self.said.rank

    @property
    def step(self) -> int:
        """How many steps its optimizers have taken, -1 where nobody has counted."""
        return self.said.step

    @property
    def line(self) -> Site | None:
        """The user's innermost line; the innermost of all may be a library's."""
        return innermost_own(self.said.stack)


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
        ranks: by number; what several of them have in common is one object.
        findings: what only many ranks can show, worst first.
        asked: seconds since the epoch.
        checked: the rules that could decide.
        not_checked: `rule: why it could not decide`.
        traced: the step that its ranks have recorded; None if they have recorded none.
        older: ranks of other jobs that have left files in the same folder, and are none of these.
        arrivals: who came last to the collectives that all ranks of a group have begun, in their order.
    """

    axes: tuple[Axis, ...]
    ranks: tuple[Rank, ...]
    findings: tuple[Finding, ...] = ()
    asked: float = 0.0
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    traced: TracedJob | None = None
    older: Runs = ()
    arrivals: tuple[Arrivals, ...] = ()
    _asker: ProcessLocal[Callable[[], Cluster]] = process_local()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many ranks there are along each axis."""
        return tuple(axis.size for axis in self.axes)

    def select(self, numbers: Iterable[int]) -> list[Rank]:
        """The ranks of these numbers."""
        return [self.ranks[number] for number in numbers]

    def in_state(self, *states: State) -> list[Rank]:
        """The ranks in one of these states."""
        return [rank for rank in self.ranks if rank.state in states]

    def find_coordinates(self, rank: Rank) -> tuple[int, ...]:
        """Where a rank stands on the axes; () where it has not said."""
        if len(self.axes) == 1 and rank.said.has_answered:
            return rank.said.coordinates or (rank.number,)
        if len(rank.said.coordinates) == len(self.axes):
            return rank.said.coordinates
        return ()


def numbers_of(ranks: Iterable[Rank]) -> list[int]:
    """The numbers of some ranks."""
    return [rank.number for rank in ranks]


def group_by(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Things by something of them."""
    found: dict[Group, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


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
