"""Blocks that repeat: siblings, one after the other, that look the same in every row of the table."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from devwidget.views.overlay import Overlay
from devwidget.views.placement import Placement

FEWEST = 3
"""Two of a kind are read as fast as one line that says so."""


def repeated_blocks(table: Placement, marks: Overlay) -> dict[int, int]:
    """First row of each run of identical blocks -> how many they are.

    Identical are classes, devices, dtypes, sizes, notes and, after a trace, the devices of what went in and came out; a
    block in which something hops or was found is like no other.
    """
    looks, own = [0] * len(table), _own_looks(table, marks)
    children: dict[int, list[int]] = {}
    known: dict[Hashable, int] = {}
    found: dict[int, int] = {}
    for row in range(len(table) - 1, -1, -1):
        below = children.pop(row, None)
        look: Hashable = own[row]
        if below is not None:
            found.update(_runs(below[::-1], looks, table))
            look = (look, *((table.names[child], looks[child]) for child in below))
        looks[row] = -1 - row if row in marks.marks else known.setdefault(look, len(known))
        children.setdefault(table.parents[row], []).append(row)
    return found


def _own_looks(table: Placement, marks: Overlay) -> list[Hashable]:
    """All that is seen of each row but its name."""
    flows = map(marks.flows.get, range(len(table)))
    sizes = (table.parameters, table.bytes, table.gradients)
    return list(zip(table.classes, table.devices, table.dtypes, *sizes, table.notes, flows, strict=True))


def _runs(siblings: list[int], looks: list[int], table: Placement) -> Iterator[tuple[int, int]]:
    start = 0
    for stop in range(1, len(siblings) + 1):
        if stop < len(siblings) and looks[siblings[stop]] == looks[siblings[start]]:
            continue
        first = siblings[start]
        if stop - start >= FEWEST and first + 1 < len(table) and table.parents[first + 1] == first:  # a block, not a leaf
            yield first, stop - start
        start = stop
