"""The modules of a job as rows, those that are alike in everything but their number as one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from devwidget.records.ranks.cluster import Cluster


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


def module_rows(cluster: Cluster) -> list[ModuleRow]:
    """The rows, in pre-order."""
    return _Tree(cluster).rows()


class _Tree:
    """The modules with their children, which the record tells by their paths alone."""

    def __init__(self, cluster: Cluster) -> None:
        self.modules = cluster.modules
        self.held = tuple(zip(*(placement.held for placement in cluster.placements), strict=True))
        self.alike: dict[Any, int] = {}

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Of each module, and of none: -1."""
        children: dict[int, list[int]] = {-1: []}
        open_: list[int] = []
        for number, module in enumerate(self.modules):
            while open_ and not _is_below(module.path, self.modules[open_[-1]].path):
                open_.pop()
            children.setdefault(open_[-1] if open_ else -1, []).append(number)
            open_.append(number)
        return children

    @cached_property
    def kinds(self) -> list[int]:
        """Of each module a number that those share which are alike, with all that is below them."""
        kinds = [0] * len(self.modules)
        for number in reversed(range(len(self.modules))):
            module = self.modules[number]
            below = tuple((self.name(child, number), kinds[child]) for child in self.children.get(number, ()))
            kind = (module.class_name, module.wrapper, self.held[number] if self.held else (), below)
            kinds[number] = self.alike.setdefault(kind, len(self.alike))
        return kinds

    def name(self, number: int, parent: int) -> str:
        """Its path below a parent."""
        path, above = self.modules[number].path, self.modules[parent].path if parent >= 0 else ""
        return path[len(above) + 1 :] if above else path

    def rows(self, parent: int = -1, depth: int = 0) -> list[ModuleRow]:
        """Below a parent."""
        found: list[ModuleRow] = []
        numbers = self.children.get(parent, [])
        at = 0
        while at < len(numbers):
            end = at + 1
            while end < len(numbers) and self._continues(numbers[at], numbers[end - 1], numbers[end], parent):
                end += 1
            name = self.name(numbers[at], parent)
            if end - at > 1:
                name = f"{name}–{self.name(numbers[end - 1], parent).rpartition('.')[2]}"
            found.append(ModuleRow(numbers[at], name, depth, end - at))
            found += self.rows(numbers[at], depth + 1)
            at = end
        return found

    def _continues(self, first: int, last: int, number: int, parent: int) -> bool:
        """Whether a module is the next of a run: alike, and one number on in the same list."""
        before, _, one = self.name(last, parent).rpartition(".")
        after, _, other = self.name(number, parent).rpartition(".")
        numbered = one.isdecimal() and other.isdecimal() and int(other) == int(one) + 1
        return numbered and before == after and self.kinds[first] == self.kinds[number]


def _is_below(path: str, above: str) -> bool:
    return not above or path.startswith(f"{above}.")
