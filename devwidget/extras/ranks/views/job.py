"""All ranks of a job as a map, what is least and most among them, how far each is, and its modules as rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank
from devwidget.extras.ranks.records.columns import Columns
from devwidget.extras.ranks.records.rank import RankMemory

MOST_ACROSS = 64
"""Ranks beside each other on the map."""
MOST_MACHINES = 16
"""Machines that have a row of their own."""


@dataclass(frozen=True, slots=True)
class Span:
    """One quantity of all ranks that know it, in bytes.

    Attributes:
        name: of the quantity.
        least: the smallest, and a rank that has it.
        median: half of them have no more.
        most: the largest, and a rank that has it.
        outlier: the rank that is far from all others; -1 if there is none.
    """

    name: str
    least: tuple[int, int]
    median: int
    most: tuple[int, int]
    outlier: int = NOWHERE


def taken_bytes(rank: Rank) -> int:
    """Bytes that a rank has allocated on accelerators; of a job on the CPU, of its process. -1 where it has not said."""
    if rank.said.memory:
        return sum(memory.allocated for memory in _counted_memory(rank))
    return NOWHERE


def peak_taken_bytes(rank: Rank) -> int:
    """The same of the most that was ever allocated."""
    if rank.said.memory:
        return sum(memory.peak for memory in _counted_memory(rank))
    return NOWHERE


def _counted_memory(rank: Rank) -> list[RankMemory]:
    on_gpu = [memory for memory in rank.said.memory if memory.device.is_accelerator]
    return on_gpu or list(rank.said.memory)


def find_age(cluster: Cluster, rank: Rank) -> float:
    """Seconds between what a rank said and the moment of asking; 0 where it has not said, or nobody has asked."""
    if cluster.asked and rank.said.has_answered:
        return max(0.0, cluster.asked - rank.said.taken)
    return 0.0


def find_spans(cluster: Cluster, columns: Columns) -> tuple[Span, ...]:
    """What is least, usual and most among the ranks."""
    held = {rank: column.bytes for column in columns.each for rank in column.ranks}
    sizes = {
        "parameters and buffers": held,
        "allocated": {rank.number: taken_bytes(rank) for rank in cluster.ranks},
        "peak": {rank.number: peak_taken_bytes(rank) for rank in cluster.ranks},
    }
    found = (_find_span(name, {rank: size for rank, size in each.items() if size > 0}) for name, each in sizes.items())
    return tuple(span for span in found if span is not None)


def _find_span(name: str, sizes: dict[int, int]) -> Span | None:
    if not sizes:
        return None
    low, high = min(sizes, key=lambda number: sizes[number]), max(sizes, key=lambda number: sizes[number])
    median = int(statistics.median(sizes.values()))
    return Span(name, (sizes[low], low), median, (sizes[high], high), _find_outlier(sizes, median))


def _find_outlier(sizes: dict[int, int], median: int) -> int:
    """The one rank that is farther from the median than three times the next, and by a tenth of it at least."""
    far = sorted(sizes, key=lambda number: -abs(sizes[number] - median))
    if len(far) < 3:
        return NOWHERE
    first, second = (abs(sizes[number] - median) for number in far[:2])
    if first > max(3 * second, median / 10):
        return far[0]
    return NOWHERE


def lay_out_lanes(cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    """The map: a row for each machine where there are some; else by coordinates, the longest axis across."""
    sizes = [axis.size for axis in cluster.axes]
    numbers = tuple(rank.number for rank in cluster.ranks)
    machines = group_by_machine(cluster)
    if 1 < len(machines) <= MOST_MACHINES and 1 < max(map(len, machines.values())) <= MOST_ACROSS:
        return tuple(machines.values())
    if len(sizes) < 2 or math.prod(sizes) != len(numbers):
        return tuple(numbers[at : at + MOST_ACROSS] for at in range(0, len(numbers), MOST_ACROSS))
    across = sizes.index(max(sizes))
    places: dict[tuple[int, ...], list[int]] = {}
    for rank in cluster.ranks:
        at = find_coordinates(cluster, rank)
        places.setdefault(at[:across] + at[across + 1 :], []).append(rank.number)
    return tuple(tuple(lane) for _, lane in sorted(places.items()))


_NAME_THEIR_RANKS = frozenset({"rank-raised", "slow-rank"})
"""Kinds of findings of which every rank that they speak of is what is wrong."""


def find_named(cluster: Cluster) -> frozenset[int]:
    """Ranks that a finding says to be absent, gone, or what the others wait for; not those of which that is not known."""
    named: set[int] = set()
    for finding in cluster.findings:
        for role in finding.roles:
            if finding.kind in _NAME_THEIR_RANKS or (role.kind == "absent" and role.how != "unknown"):
                named.update(role.ranks)
    return frozenset(named)


def group_by_machine(cluster: Cluster) -> dict[str, tuple[int, ...]]:
    """Ranks by the name of their machine, "" of those that have not said."""
    found: dict[str, list[int]] = {}
    for rank in cluster.ranks:
        found.setdefault(rank.said.host, []).append(rank.number)
    return {host: tuple(numbers) for host, numbers in found.items()}


def name_lanes(cluster: Cluster) -> tuple[str, ...]:
    """The machine that all ranks of a row are of; "" where they are of several, or have not said."""
    names: list[str] = []
    for lane in lay_out_lanes(cluster):
        hosts = {cluster.ranks[number].said.host for number in lane}
        names.append(hosts.pop() if len(hosts) == 1 else "")
    if len(set(names)) > 1:
        return tuple(names)
    return ("",) * len(names)


def _row_major(number: int, sizes: Iterable[int]) -> tuple[int, ...]:
    """Where a rank stands that has not said: where `init_device_mesh` would put it."""
    coordinates = []
    for size in reversed(tuple(sizes)):
        number, coordinate = divmod(number, size)
        coordinates.append(coordinate)
    return tuple(reversed(coordinates))


def find_coordinates(cluster: Cluster, rank: Rank) -> tuple[int, ...]:
    """Of any rank, also of one that has not said."""
    return cluster.find_coordinates(rank) or _row_major(rank.number, (axis.size for axis in cluster.axes))


ORDERLY = frozenset({"answered", "ended"})
"""States of ranks with which nothing is wrong."""


def group_alike(cluster: Cluster) -> tuple[tuple[Rank, ...], ...]:
    """Ranks that did not simply answer: those together that wait at one line in one collective, or say the same otherwise."""
    found: dict[Any, list[Rank]] = {}
    for rank in cluster.ranks:
        if rank.state not in ORDERLY:
            held = rank.said.collective
            if held is not None:
                where = (held.kind, held.group, held.sequence)
            else:
                where = None
            found.setdefault((rank.state, rank.step, rank.note, rank.said.stack, where), []).append(rank)
    return tuple(map(tuple, found.values()))


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One row.

    Attributes:
        number: of the module in the cluster; of several that are alike, of the first.
        name: the end of its path, `0–11` where it stands for several.
        depth: how many of its ancestors have a row.
        times: for how many modules it stands.
    """

    number: int
    name: str
    depth: int
    times: int = 1


def module_rows(columns: Columns) -> list[ModuleRow]:
    """The rows, in pre-order."""
    return list(_Tree(columns).list_rows(0, len(columns.modules)))


class _Tree:
    """The modules in pre-order: what is below one follows it, as long as paths begin with its own."""

    def __init__(self, columns: Columns) -> None:
        self.modules = columns.modules
        self.held = [tuple(column.held[number] for column in columns.each) for number in range(len(columns.modules))]

    def find_end(self, number: int) -> int:
        """The first module behind one that is not below it."""
        path = self.modules[number].path
        end = number + 1
        while end < len(self.modules) and (not path or self.modules[end].path.startswith(f"{path}.")):
            end += 1
        return end

    def list_rows(self, start: int, stop: int, above: str = "", depth: int = 0) -> Iterator[ModuleRow]:
        """The rows of the modules from one place to another, which stand below a path."""
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
        """What is alike of modules that share a row, with all that is below them."""
        cut = len(self.modules[start].path)
        return [
            (module.path[cut:], module.class_name, module.wrapper, held)
            for module, held in zip(self.modules[start:end], self.held[start:end], strict=True)
        ]

    def _is_next(self, number: int, following: int) -> bool:
        """Whether a module is one number on in the same list."""
        before, _, one = self.modules[number].path.rpartition(".")
        after, _, other = self.modules[following].path.rpartition(".")
        return one.isdecimal() and other.isdecimal() and int(other) == int(one) + 1 and before == after
