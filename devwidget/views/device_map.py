"""A model on several devices, or proposed for them: blocks in order, a column for each device, what crosses between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from devwidget.records.answers import BlockCost, Layout
from devwidget.records.device import DeviceId
from devwidget.records.trace import Move, Trace
from devwidget.views.hops import with_forward_copies
from devwidget.views.placement import PlacementTable, device_order

MOST_BLOCKS = 60
"""More would not be told apart; neighbours on one device are joined then, whatever they are."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the model that is on one device, or several like it, one after the other.

    Attributes:
        paths: of each of them, the first one first.
        class_name: "" for parts of several kinds.
        device: where it is.
        bytes: of all of them.
        start: place in the trace where the first began, -1 if none ran.
    """

    paths: tuple[str, ...]
    class_name: str
    device: DeviceId
    bytes: int
    start: int = -1

    @property
    def path(self) -> str:
        """Of the first."""
        return self.paths[0]

    def holds(self, path: str | None) -> bool:
        """Whether a module is one of them, or inside one."""
        return path is not None and any(path == own or path.startswith(f"{own}.") for own in self.paths)


@dataclass(frozen=True, slots=True)
class BlockCrossing:
    """What goes from one block to another; -1 as source or target is outside of all blocks."""

    source: int
    target: int
    moves: tuple[Move, ...]

    @property
    def bytes(self) -> int:
        """Of all of it."""
        return sum(move.bytes * move.count for move in self.moves)


@dataclass(frozen=True, slots=True)
class DeviceMap:
    """Devices from left to right, blocks from top to bottom in the order in which they run, crossings between them."""

    devices: tuple[DeviceId, ...]
    blocks: tuple[Block, ...]
    crossings: tuple[BlockCrossing, ...]
    """In the forward pass and the loss."""
    back: tuple[BlockCrossing, ...] = ()
    """In backward: gradients, each on the way of the copy of the forward pass that it belongs to."""
    elsewhere: tuple[Move, ...] = ()
    """What crosses in backward besides, on no way of the forward pass."""


def make_device_map(table: PlacementTable, trace: Trace | None = None) -> DeviceMap | None:
    """The map of a model whose blocks are on more than one device; None for others."""
    blocks = _order_blocks(list(_find_blocks(table, 0)) if len(table) else [], trace)
    joined = join_blocks(blocks)
    devices = {block.device for block in joined}
    if len(devices) < 2:
        return None
    moves = [move for move in trace.moves if move.source != move.target] if trace is not None else []
    crossings = _find_crossings(tuple(joined), [move for move in moves if move.phase in ("forward", "loss")])
    shown = devices | {move.source for crossing in crossings for move in crossing.moves}
    back, elsewhere = _find_backward_crossings(moves, crossings)
    return DeviceMap(tuple(sorted(shown, key=device_order)), tuple(joined), crossings, back, elsewhere)


def _find_blocks(table: PlacementTable, row: int) -> Iterator[Block]:
    """The largest subtrees on one device each; what is on no device has no place on a map."""
    devices = table.devices_of(row)
    parts = list(_child_rows(table, row)) if len(devices) > 1 else []
    if devices and not parts:  # a stray tensor of a leaf has findings, and no column
        yield Block((table.paths[row],), table.classes[row], devices[0], table.bytes[row])
    elif devices:
        for part in parts:
            yield from _find_blocks(table, part)


def _child_rows(table: PlacementTable, row: int) -> Iterator[int]:
    """Rows of the modules right below one."""
    below = row + 1
    while below < len(table) and table.depths[below] > table.depths[row]:
        if table.parents[below] == row and table.tensors[below] is None:
            yield below
        below += 1


def _order_blocks(blocks: list[Block], trace: Trace | None) -> list[Block]:
    """As they run; what did not run stays behind its neighbour."""
    starts = {event.path: event.number for event in trace.modules if event.replica < 0} if trace is not None else {}
    placed: list[tuple[int, Block]] = []
    for block in blocks:
        start = starts.get(block.path, -1)
        placed.append((start if start >= 0 else placed[-1][0] if placed else -1, replace(block, start=start)))
    return [block for _, block in sorted(placed, key=lambda each: each[0])]


def join_blocks(blocks: list[Block]) -> list[Block]:
    """Neighbours on one device as one, if they are of one kind, or there are too many."""
    joined = _join_neighbours(blocks, same_kind=True)
    return _join_neighbours(joined, same_kind=False) if len(joined) > MOST_BLOCKS else joined


def _join_neighbours(blocks: list[Block], *, same_kind: bool) -> list[Block]:
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        alike = last is not None and last.device == block.device
        if last is not None and alike and (not same_kind or _are_siblings(last, block)):
            kind = last.class_name if last.class_name == block.class_name else ""
            joined[-1] = replace(last, paths=last.paths + block.paths, class_name=kind, bytes=last.bytes + block.bytes)
        else:
            joined.append(block)
    return joined


def _are_siblings(one: Block, other: Block) -> bool:
    return one.class_name == other.class_name and one.paths[-1].rpartition(".")[0] == other.path.rpartition(".")[0]


def _find_crossings(blocks: tuple[Block, ...], moves: list[Move]) -> tuple[BlockCrossing, ...]:
    found: dict[tuple[int, int], list[Move]] = {}
    for move in moves:
        target = _find_arrival_block(blocks, move)
        if target >= 0:
            found.setdefault((_find_source_block(blocks, move, target), target), []).append(move)
    return tuple(BlockCrossing(source, target, tuple(group)) for (source, target), group in found.items())


def _find_backward_crossings(
    moves: list[Move], crossings: tuple[BlockCrossing, ...]
) -> tuple[tuple[BlockCrossing, ...], tuple[Move, ...]]:
    """What crosses in backward, with and without a way of the forward pass."""
    ways = {id(move): (each.target, each.source) for each in crossings for move in each.moves}
    found: dict[tuple[int, int], list[Move]] = {}
    elsewhere: list[Move] = []
    for move, copy in with_forward_copies(moves):
        if move.phase == "backward":
            way = ways.get(id(copy))
            (elsewhere if way is None else found.setdefault(way, [])).append(move)
    return tuple(BlockCrossing(*way, tuple(group)) for way, group in found.items()), tuple(elsewhere)


def _find_arrival_block(blocks: tuple[Block, ...], move: Move) -> int:
    """The block inside which it arrives, else the next one that begins there, else the last; -1 for none."""
    there = [at for at, block in enumerate(blocks) if block.device == move.target]
    fits = (at for at in there if blocks[at].holds(move.module) or blocks[at].start > move.number)
    return next(fits, there[-1] if there else -1)


def _find_source_block(blocks: tuple[Block, ...], move: Move, target: int) -> int:
    """The last block before it on the device that it leaves."""
    before = [at for at, block in enumerate(blocks) if at != target and 0 <= block.start < move.number]
    return next((at for at in reversed(before) if blocks[at].device == move.source), -1)


def proposed_map(layout: Layout, table: PlacementTable) -> DeviceMap:
    """Blocks in the order in which they run, and what they pass on; the way back of the output is among it.

    Args:
        table: of the model, for the classes of its modules; those that it does not have are drawn without.
    """
    classes = dict(zip(table.paths, table.classes, strict=True))
    blocks = join_blocks(
        [
            Block((cost.path,), classes.get(cost.path, ""), cost.device, cost.weights, at)
            for at, cost in enumerate(layout.blocks)
        ]
    )
    devices = tuple(sorted({block.device for block in blocks}, key=device_order))
    return DeviceMap(devices, tuple(blocks), tuple(_proposed_crossings(layout, blocks)))


def _proposed_crossings(layout: Layout, blocks: list[Block]) -> list[BlockCrossing]:
    """From block to block where the device changes, and from the last to the first."""
    ends = [max(at for at, cost in enumerate(layout.blocks) if cost.path in block.paths) for block in blocks]
    found = []
    for source, (block, end) in enumerate(zip(blocks, ends, strict=True)):
        target = (source + 1) % len(blocks)
        if blocks[target].device != block.device:
            found.append(
                BlockCrossing(source, target, (_proposed_move(layout.blocks[end], blocks[target].device, blocks[target].path),))
            )
    return found


def _proposed_move(cost: BlockCost, target: DeviceId, module: str) -> Move:
    return Move(cost.device, target, cost.passed, cost.shape, cost.dtype, module, "forward", None, "hook")
