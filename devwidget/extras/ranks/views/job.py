"""All ranks of a job as a map, minima and maxima over ranks, modules as rows, and what blocks the job."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.columns import Columns
from devwidget.extras.ranks.records.rank import Collective
from devwidget.records.finding import RankRole
from devwidget.records.runs import Runs, runs_of
from devwidget.records.site import Site
from devwidget.views.sums import total

MOST_ACROSS = 64
"""Ranks per row of the map."""
MOST_MACHINES = 16
"""Maximum number of machines with rows of their own."""


@dataclass(frozen=True, slots=True)
class Span:
    """One quantity over all ranks that know it, in bytes: minimum and maximum, each with a rank that has it, and the rank that
    is far from all others, -1 without one."""

    name: str
    least: tuple[int, int]
    median: int
    most: tuple[int, int]
    outlier: int = NOWHERE


def taken_bytes(rank: Rank) -> tuple[int, int]:
    """Return the allocated bytes of a rank on accelerators, or else of its process, now and at the peak; -1 if unknown."""
    counted = [memory for memory in rank.said.memory if memory.device.is_accelerator] or rank.said.memory
    if not counted:
        return NOWHERE, NOWHERE
    return total(counted, "allocated"), total(counted, "peak")


def find_age(cluster: Cluster, rank: Rank) -> float:
    """Return the seconds between a report and the query; 0 without one of them."""
    if cluster.asked and not rank.said.announced:
        return max(0.0, cluster.asked - rank.said.taken)
    return 0.0


def find_spans(cluster: Cluster, columns: Columns) -> tuple[Span, ...]:
    """Return minimum, median and maximum over the ranks."""
    held: dict[int, int] = {}
    now: dict[int, int] = {}
    most: dict[int, int] = {}
    for column in columns.each:
        held |= dict.fromkeys(column.ranks, column.bytes)
    for rank in cluster.ranks:
        now[rank.number], most[rank.number] = taken_bytes(rank)
    found = []
    for name, by_rank in (("parameters and buffers", held), ("allocated", now), ("peak", most)):
        known = {number: size for number, size in by_rank.items() if size > 0}
        if known:
            low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
            median = int(statistics.median(known.values()))
            found.append(Span(name, (known[low], low), median, (known[high], high), _find_outlier(known, median)))
    return tuple(found)


def _find_outlier(sizes: dict[int, int], median: int) -> int:
    """Return the rank that is over three times as far from the median as the next, and at least a tenth of it."""
    far = sorted((abs(size - median), number) for number, size in sizes.items())
    if len(far) < 3:
        return NOWHERE
    (second, _), (first, outlier) = far[-2:]
    if first > max(3 * second, median / 10):
        return outlier
    return NOWHERE


def lay_out_lanes(cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    """Return the rows of the map: one for each machine if there are several; else by coordinates, longest axis across."""
    sizes = cluster.sizes
    machines = group_by(cluster.ranks, lambda rank: rank.said.host)
    if 1 < len(machines) <= MOST_MACHINES and 1 < max(map(len, machines.values())) <= MOST_ACROSS:
        lanes = list(machines.values())
    elif len(sizes) < 2 or math.prod(sizes) != len(cluster.ranks):
        lanes = list(group_by(cluster.ranks, lambda rank: rank.number // MOST_ACROSS).values())
    else:
        across = sizes.index(max(sizes))

        def find_row(rank: Rank) -> tuple[int, ...]:
            at = find_coordinates(cluster, rank)
            return at[:across] + at[across + 1 :]

        lanes = list(group_by(sorted(cluster.ranks, key=find_row), find_row).values())
    return tuple(tuple(numbers_of(lane)) for lane in lanes)


_NAME_THEIR_RANKS = frozenset({"rank-raised", "slow-rank"})
"""Kinds of findings in which every rank that they name is at fault."""


def find_named(cluster: Cluster) -> frozenset[int]:
    """Return the ranks that a finding calls missing, ended or blocking, without those that are unknown."""
    named: set[int] = set()
    for finding in cluster.findings:
        for role in finding.roles:
            if finding.kind in _NAME_THEIR_RANKS or (role.kind == "absent" and role.how != "unknown"):
                named.update(role.ranks)
    return frozenset(named)


def name_lanes(cluster: Cluster) -> tuple[str, ...]:
    """Return the machine of each row; "" if its ranks are on several or did not report."""
    names: list[str] = []
    for lane in lay_out_lanes(cluster):
        first, *others = {rank.said.host for rank in cluster.select(lane)}
        names.append("" if others else first)
    if len(set(names)) > 1:
        return tuple(names)
    return ("",) * len(names)


def find_coordinates(cluster: Cluster, rank: Rank) -> tuple[int, ...]:
    """Return the coordinates of any rank; of one that did not report, those that `init_device_mesh` would give it."""
    found, number = cluster.find_coordinates(rank), rank.number
    if found:
        return found
    for size in reversed(cluster.sizes):
        number, coordinate = divmod(number, size)
        found = (coordinate, *found)
    return found


ORDERLY = frozenset({"answered", "ended"})
"""States of healthy ranks."""


def group_alike(cluster: Cluster) -> tuple[tuple[Rank, ...], ...]:
    """Group ranks that did not simply answer: by line and collective, or by report."""
    odd = [rank for rank in cluster.ranks if rank.state not in ORDERLY]
    return tuple(map(tuple, group_by(odd, _what_it_says).values()))


def _what_it_says(rank: Rank) -> object:
    held = rank.said.collective
    where = held and (held.kind, held.group, held.sequence)
    return rank.state, rank.step, rank.note, rank.said.stack, where


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One or several identical modules: the number of the first, its name, `0–11` for several, the number of ancestors with a
    row, and the number of modules."""

    number: int
    name: str
    depth: int
    times: int = 1


def module_rows(columns: Columns) -> list[ModuleRow]:
    """Return the rows in pre-order."""
    return list(_Tree(columns).list_rows(0, len(columns.modules)))


class _Tree:
    """Modules in pre-order: descendants follow a module while paths begin with its own."""

    def __init__(self, columns: Columns) -> None:
        self.modules = columns.modules
        self.held = list(zip(*(column.held for column in columns.each), strict=True))

    def find_end(self, number: int) -> int:
        """Return the first module after one that is not below it."""
        path = self.modules[number].path
        end = number + 1
        while end < len(self.modules) and (not path or self.modules[end].path.startswith(f"{path}.")):
            end += 1
        return end

    def list_rows(self, start: int, stop: int, above: str = "", depth: int = 0) -> Iterator[ModuleRow]:
        """Yield the rows of a range of modules below a path."""
        while start < stop:
            module, end = self.modules[start], self.find_end(start)
            look, last, times, following = self._look_of(start, end), start, 1, end
            while following < stop and self._is_next(last, following):
                if self._look_of(following, self.find_end(following)) != look:
                    break
                last, times, following = following, times + 1, self.find_end(following)
            name = module.path.removeprefix(f"{above}.")
            if times > 1:
                name = f"{name}–{self.modules[last].path.rpartition('.')[2]}"
            yield ModuleRow(start, name, depth, times)
            yield from self.list_rows(start + 1, end, module.path, depth + 1)
            start = following

    def _look_of(self, start: int, end: int) -> list[tuple[object, ...]]:
        """Return what is equal for modules that share a row, with everything below them."""
        cut = len(self.modules[start].path)
        return [
            (module.path[cut:], module.class_name, module.wrapper, held)
            for module, held in zip(self.modules[start:end], self.held[start:end], strict=True)
        ]

    def _is_next(self, number: int, following: int) -> bool:
        before, _, one = self.modules[number].path.rpartition(".")
        after, _, other = self.modules[following].path.rpartition(".")
        return one.isdecimal() and other.isdecimal() and int(other) == int(one) + 1 and before == after


MOST_HELD = 4
"""Collectives that are drawn."""


@dataclass(frozen=True, slots=True)
class HeldRanks:
    """Ranks at one place of a wait; `first`, `state` and `site` are of the lowest of them.

    Attributes:
        role: absent: they did not reach it or have ended. unknown: it is unknown whether they did. waiting: they reached it.
            behind: they wait in other collectives for these.
        seconds: Longest wait.
    """

    role: str
    ranks: Runs
    first: int
    state: str
    site: Site | None
    seconds: float


@dataclass(frozen=True, slots=True)
class HeldCollective:
    """One unfinished collective, the number of its ranks that called it, and rows, those that block it first."""

    collective: Collective
    came: int
    rows: tuple[HeldRanks, ...]


def find_held(cluster: Cluster) -> tuple[HeldCollective, ...]:
    """Return what the findings say of waiting ranks."""
    found = []
    for finding in cluster.findings:
        roles: dict[str, RankRole] = {role.kind: role for role in finding.roles}
        if not {"waiting", "absent"} <= roles.keys():
            continue
        came = cluster.select(roles["waiting"].ranks)
        rows: list[HeldRanks] = []
        for kind in ("absent", "waiting", "behind"):
            if kind in roles:
                rows += _list_rows(roles[kind], cluster.select(roles[kind].ranks))
        if came[0].said.collective is not None:
            found.append(HeldCollective(came[0].said.collective, len(came), tuple(rows)))
    return tuple(found[:MOST_HELD])


def _list_rows(role: RankRole, ranks: list[Rank]) -> Iterator[HeldRanks]:
    blocks, name = role.kind == "absent", str(role.kind)
    if role.how == "unknown":
        name = "unknown"
    for same in group_by(ranks, lambda rank: (rank.state, rank.said.stack) if blocks else None).values():
        numbers = numbers_of(same)
        seconds = max((rank.said.collective.seconds for rank in same if rank.said.collective is not None), default=0.0)
        yield HeldRanks(name, runs_of(numbers), numbers[0], same[0].state, same[0].line, seconds)
