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
"""answered: in time. hung: answered, but waits in a collective with a rank that cannot come, or for too long. busy: alive, but
did not answer in time. stopped: by a signal. stale: its file is older than the others'. dead: its process ended without a
final report. raised, terminated: its final report is an exception, or a signal that ends a process. ended: its final report
is a normal end. unknown: the job has this rank, but there is no data: it runs elsewhere, or has not called
`devwidget.serve()`."""

WITH_LAST_WORD = frozenset({"raised", "terminated", "ended"})
"""States of ranks that reported how they ended."""
GONE = frozenset({"dead", *WITH_LAST_WORD})
"""States of ranks that no longer call collectives."""

NOWHERE = -1
"""An unknown step, rank, or place."""
Item = TypeVar("Item")
Group = TypeVar("Group", bound=Hashable)
IN_A_ROW = "rank"
"""The axis of ranks without a mesh."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank at a query: its state and its newest report.

    Attributes:
        state: Its state.
        said: Its report; `silent_rank` without one.
        note: Why it is in this state, and further facts.
        hangs: Whether it waits in a collective, or waited in it at its end, for too long or for a rank that cannot come.
    """

    state: State
    said: RankReport
    note: str = ""
    hangs: bool = False

    @property
    def number(self) -> int:
        """Its number in the job."""
        return self.said.rank

    @property
    def step(self) -> int:
        """Number of its optimizer steps, -1 if unknown."""
        return self.said.step

    @property
    def line(self) -> Site | None:
        """The user's innermost line; the innermost of all may be a library's."""
        return innermost_own(self.said.stack)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Which rank came last to one collective that all its ranks have called, by comparable clocks.

    Attributes:
        count: Number of ranks that called it.
        last: The rank that came last.
        seconds: Time between the last but one and the last.
        begun: Time of the first, in seconds since the epoch.
    """

    group: str
    count: Size
    last: Size
    seconds: Duration
    begun: float


@dataclass(frozen=True, slots=True)
class Cluster(Record):
    """All ranks of one job.

    Attributes:
        axes: Axes of the mesh, outermost first; one axis `rank` for a job without a mesh.
        ranks: Ranks by number; equal parts of several ranks are one object.
        findings: Findings that need several ranks, worst first.
        asked: Time of the query, in seconds since the epoch.
        checked: Rules that could decide.
        not_checked: `rule: why it could not decide`.
        traced: The step that its ranks have recorded; None without one.
        older: Ranks of other jobs that left files in the same folder.
        arrivals: Which rank came last to the collectives that all ranks of a group have called, in order.
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
        """Number of ranks along each axis."""
        return tuple(axis.size for axis in self.axes)

    def select(self, numbers: Iterable[int]) -> list[Rank]:
        """Return the ranks with these numbers."""
        return list(map(self.ranks.__getitem__, numbers))

    def in_state(self, *states: State) -> list[Rank]:
        """Return the ranks in one of these states."""
        return [rank for rank in self.ranks if rank.state in states]

    def find_coordinates(self, rank: Rank) -> tuple[int, ...]:
        """Return the coordinates of a rank; () if it did not report them."""
        if len(self.axes) == 1 and not rank.said.announced:
            return rank.said.coordinates or (rank.number,)
        if len(rank.said.coordinates) == len(self.axes):
            return rank.said.coordinates
        return ()


def numbers_of(ranks: Iterable[Rank]) -> list[int]:
    """Return the numbers of some ranks."""
    return [rank.number for rank in ranks]


def group_by(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Group items by a key."""
    found: dict[Group, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def innermost_own(stack: tuple[Site, ...]) -> Site | None:
    """Return the user's innermost line of a stack."""
    return next((site for site in reversed(stack) if not _is_installed(site.file)), None)


def _is_installed(file: str) -> bool:
    return re.search(r"/(site-packages|dist-packages|lib/python3\.\d+)/", file) is not None


def may_be_asked_again(cluster: Cluster, ask: Callable[[], Cluster]) -> Cluster:
    """Return the cluster as one whose ranks can be queried again in this process."""
    return replace(cluster, _asker=ProcessLocal(ask))


def asker_of(cluster: Cluster) -> Callable[[], Cluster] | None:
    """Return how to query its ranks again; None for a record that was loaded or made by hand."""
    return cluster._asker.value
