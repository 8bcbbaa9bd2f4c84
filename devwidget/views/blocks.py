"""The parts of a model that are drawn: as few as show where it lives, equal neighbours as one, each of them to unfold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.trace import Trace
from devwidget.views.parallel import ParallelCall
from devwidget.views.placement import PlacementTable
from devwidget.views.sums import group_by, items_once, total, values_once

FEW_BLOCKS, MOST_BLOCKS = 12, 60
"""A picture unfolds by itself up to the first; beyond the second neighbours on one device are joined, whatever they are."""
_PARTS_OF_RUN = 12
"""Into which a run of equal blocks unfolds, itself runs if it is long."""

What = Literal["module", "visit", "tensor", "batch", "replica", "outputs", "gradients"]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Block:
    """What has a place on a device: a part of the model, or several like it one after the other; or a tensor.

    Attributes:
        paths: of each of them, the first one first.
        class_name: "" for parts of several kinds.
        device: where it is.
        bytes: of all of them.
        start: place in the trace where the first began, -1 if none ran.
        what: a module; a visit of one, whose weights come for each call; a tensor from outside; a part of DataParallel.
        name: of a tensor, as the user's code calls it; "" if that is not known.
        dtype: of a tensor.
        shape: of a tensor, of the first one if there are several.
        row: place in the picture, from the top.
        number: of a replica.
        samples: of the batch, or of the share of a replica.
        unfolds: what `opened` has to hold to see its parts; "" if it has none.
        wrong: an error was found in it.
        call: of DataParallel, that it is a part of.
    """

    paths: tuple[str, ...]
    class_name: str
    device: DeviceId
    bytes: int
    start: int = -1
    what: What = "module"
    name: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    row: int = 0
    number: int = -1
    samples: int = 0
    unfolds: str = ""
    wrong: bool = False
    call: ParallelCall | None = None

    @property
    def path(self) -> str:
        """Of the first."""
        return self.paths[0]


class Folding:
    """Chooses the blocks of one model.

    Args:
        whole: paths that are never unfolded, such as wrappers whose replicas are drawn.
        opened: what a reader has unfolded, by `Block.unfolds`.
        every: each block by itself, equal ones too.
    """

    def __init__(
        self,
        table: PlacementTable,
        trace: Trace,
        *,
        whole: Collection[str] = (),
        opened: Collection[str] = (),
        every: bool = False,
    ) -> None:
        self._table, self._whole, self._opened, self._every = table, whole, opened, every
        self._starts = {event.path: event.number for event in trace.modules if event.replica < 0}
        self._wrong = _find_wrong(trace)
        self._parts = _list_parts(table)

    def choose(self) -> list[Block]:
        """The blocks in the order in which they run: those that the picture has by itself, then what a reader has opened."""
        rows = self._split(self._choose_rows(), lambda row: self._table.paths[row] in self._opened)
        joined = self._join(rows, self._opened, every=self._every)
        if len(joined) <= MOST_BLOCKS:
            return joined
        return _join_all(joined)

    def _choose_rows(self) -> list[int]:
        if not len(self._table) or not self._table.devices[0]:
            return []
        rows = self._split([0], self._must_split)
        stuck: set[int] = set()
        joined = self._join(rows)
        while len(joined) < FEW_BLOCKS:
            heaviest = self._find_heaviest(rows, joined, stuck)
            if heaviest is None:
                break
            more = self._split(rows, heaviest.__eq__)
            again = self._join(more)
            if len(again) > FEW_BLOCKS:
                stuck.add(heaviest)
            else:
                rows, joined = more, again
        return rows

    def _must_split(self, row: int) -> bool:
        """What lies on several devices, and the model itself."""
        return not row or self._table.devices[row].bit_count() > 1

    def _split(self, rows: list[int], splits: Callable[[int], bool]) -> list[int]:
        """Rows with the parts of some in their place."""
        found: list[int] = []
        left = rows[::-1]
        while left:
            row = left.pop()
            parts = self._find_parts(row)
            if parts and splits(row):
                left += reversed(parts)
            else:
                found.append(row)
        return found

    def _find_parts(self, row: int) -> list[int]:
        if self._table.paths[row] in self._whole:
            return []
        return self._parts.get(row, [])

    def _find_heaviest(self, rows: list[int], joined: list[Block], stuck: set[int]) -> int | None:
        """The one to unfold next; what is one of many alike, or fails itself, is seen whole."""
        whole, names, items = set(), set(), Counter(map(_list_of, joined))
        for block in joined:
            if len(block.paths) > 1 or block.path in self._wrong:
                whole.add(block.class_name)
        for block in joined:
            if block.class_name not in whole and items[_list_of(block)] == 1:
                names.add(block.path)

        def can_unfold(row: int) -> bool:
            return row not in stuck and self._table.paths[row] in names and bool(self._find_parts(row))

        return max(filter(can_unfold, rows), key=self._table.bytes.__getitem__, default=None)

    def _join(self, rows: list[int], opened: Collection[str] = (), *, every: bool = False) -> list[Block]:
        """Blocks as they run; siblings of one kind on one device as one."""
        placed: list[tuple[int, Block]] = []
        start = -1
        for block in map(self._make_block, rows):
            if block.start >= 0:
                start = block.start
            placed.append((start, block))
        placed.sort(key=itemgetter(0))
        joined: list[Block] = []
        for _, group in groupby(map(itemgetter(1), placed), _kind_of):
            run = list(group)
            joined += run if every else _unfold(run, opened)
        return joined

    def _make_block(self, row: int) -> Block:
        table, path = self._table, self._table.paths[row]
        wrong = any(f"{each}.".startswith(f"{path}.") for each in self._wrong)
        unfolds = ""
        if self._find_parts(row):
            unfolds = path
        device, start = table.devices_of(row)[0], self._starts.get(path, -1)
        return Block((path,), table.classes[row], device, table.bytes[row], start, unfolds=unfolds, wrong=wrong)


def _unfold(run: list[Block], opened: Collection[str]) -> Iterator[Block]:
    """A run as one block; as its parts where a reader has opened it."""
    key = f"{run[0].path}:{run[-1].path}"
    if len(run) == 1:
        yield run[0]
    elif key in opened:
        size = -(-len(run) // _PARTS_OF_RUN)
        for at in range(0, len(run), size):
            yield from _unfold(run[at : at + size], opened)
    else:
        yield replace(_merge(run), unfolds=key)


def _find_wrong(trace: Trace) -> set[str]:
    """Paths of modules in which something was wrong, each of the blocks in which one line was."""
    wrong = {fault.module for fault in trace.faults}
    for finding in trace.findings:
        if finding.severity == "error":
            wrong.add(finding.module)
    return {module for module in wrong if module}


def _list_parts(table: PlacementTable) -> dict[int, list[int]]:
    """The modules right below each that hold anything; a tensor in an attribute has no place in the picture."""
    parts: dict[int, list[int]] = {}
    for row in range(1, len(table)):
        if table.devices[row] and table.tensors[row] is None:
            parts.setdefault(table.parents[row], []).append(row)
    return parts


def _kind_of(block: Block) -> object:
    return block.class_name, block.path.rpartition(".")[0], block.device, block.wrong


def _list_of(block: Block) -> str:
    """The list whose item a block is; the block itself if it is none."""
    parent, _, name = block.path.rpartition(".")
    if name.isdigit():
        return f"{parent}.{block.class_name}"
    return block.path


def _merge(run: list[Block]) -> Block:
    class_name, *others = values_once(run, "class_name")
    if others:
        class_name = ""
    return replace(run[0], paths=items_once(run, "paths"), class_name=class_name, bytes=total(run, "bytes"))


def _join_all(blocks: list[Block]) -> list[Block]:
    """Neighbours on one device as one; of a long way to and fro as many together as leave few."""
    of_device = attrgetter("device")
    runs = [_merge(list(run)) for _, run in groupby(blocks, of_device)]
    if len(runs) > MOST_BLOCKS:
        size = -(-len(runs) // max(1, MOST_BLOCKS // len(values_once(runs, "device"))))
        windows = [group_by(runs[at : at + size], of_device) for at in range(0, len(runs), size)]
        runs = [_merge(part) for window in windows for part in window.values()]
    return [replace(run, unfolds="") for run in runs]


def join_alike(blocks: list[Block]) -> list[Block]:
    """Neighbours of one kind on one device as one; whatever their kind if there are too many."""
    joined = [_merge(list(run)) for _, run in groupby(blocks, _kind_of)]
    if len(joined) <= MOST_BLOCKS:
        return joined
    return _join_all(joined)
