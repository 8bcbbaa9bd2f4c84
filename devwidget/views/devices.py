"""A model on its devices, now or during a step: a column for each device, its blocks, and the transfers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.memory import ROLES, DeviceMemory
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Fault, Move, Operand, Trace
from devwidget.views.blocks import Block, Folding, What
from devwidget.views.clock import with_real_times
from devwidget.views.hops import with_forward_copies
from devwidget.views.memory import find_curve, list_parts, memory_bars, refused_bytes, sum_parts
from devwidget.views.parallel import ParallelCall, parallel_calls
from devwidget.views.placement import PlacementTable, device_order
from devwidget.views.sums import group_by, total, values_once

Kind = Literal["copy", "gradient", "healed", "stopped"]
_STEPS = {"scatter": "input_bytes", "replicate": "parameter_bytes", "gather": "output_bytes", "reduce": "gradient_bytes"}
"""Step of DataParallel -> what it moves for each replica."""


@dataclass(frozen=True, slots=True)
class DeviceColumn:
    """One device.

    Attributes:
        device: which.
        capacity: bytes that it has, 0 if unknown.
        parts: what its bytes are for, and how many: at the peak of the step where that is known, else now.
        refused: what the first allocation that did not fit would have come to, 0 if all did.
        is_peak: `parts` describe the peak.
        is_idle: nothing of the picture is on it.
    """

    device: DeviceId
    capacity: int
    parts: tuple[tuple[str, int], ...]
    refused: int = 0
    is_peak: bool = False
    is_idle: bool = False

    @property
    def taken(self) -> int:
        """Bytes of all parts."""
        return sum_parts(self.parts)


@dataclass(frozen=True, slots=True)
class Way:
    """What goes from one block to another.

    Attributes:
        source, target: numbers of the blocks.
        kind: a copy; a gradient on its way back; what the trace has moved; or what stopped the step.
        bytes: of all of it.
        count: how often.
        moves: that it is made of.
        fault: that stopped the step.
        step, call: step and call of DataParallel.
    """

    source: int
    target: int
    kind: Kind
    bytes: int
    count: int = 1
    moves: tuple[Move, ...] = ()
    fault: Fault | None = None
    step: str = ""
    call: ParallelCall | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """Columns from left to right, blocks in rows from top to bottom in the order in which they run, ways between them."""

    columns: tuple[DeviceColumn, ...]
    blocks: tuple[Block, ...]
    ways: tuple[Way, ...]


def make_picture(
    snapshot: Snapshot, table: PlacementTable, trace: Trace | None = None, *, opened: Collection[str] = (), every: bool = False
) -> Picture:
    """Lay out a model, and one step of it, on its devices.

    Args:
        table: of the snapshot.
        opened: what a reader has unfolded, by `Block.unfolds`.
        every: each block by itself, equal ones too.
    """
    trace = with_real_times(trace or Trace())
    calls = [call for call in parallel_calls(trace) if call.replicas]
    folding = Folding(table, trace, whole=set(values_once(calls, "wrapper")), opened=opened, every=every)
    sketch = Sketch()
    for block in folding.choose():
        sketch.add(block)
    for call in calls:
        _add_call(sketch, call)
    moves = [move for move in trace.moves if move.source != move.target]
    if calls:
        moves = [move for move in moves if move.cause not in _STEPS]
    _add_moves(sketch, moves, trace.faults)
    _add_stops(sketch, trace.faults)
    return sketch.finish(_find_columns(snapshot, trace))


@dataclass(slots=True)
class Sketch:
    """An unfinished picture: blocks by number, and which of them are adjacent."""

    blocks: list[Block] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    owners: dict[str, list[int]] = field(default_factory=dict)
    """Path of a module -> the blocks that it is a part of."""

    def add(self, block: Block, row: int | None = None) -> int:
        """A block in a row of its own, the last or before another; return its number."""
        number = len(self.blocks)
        self.blocks.append(block)
        if block.what in ("module", "visit"):
            for path in block.paths:
                self.owners.setdefault(path, []).append(number)
        if row is None:
            row = len(self.rows)
        self.rows.insert(row, [number])
        return number

    def add_before(self, block: Block, target: int) -> int:
        """A tensor above the block that it goes to, next to others that do; in the last row if that block is not there yet."""
        row = len(self.rows)
        if target >= 0:
            row = self.row_of(target)
        above = self.rows[row - 1] if row else []
        can_join = bool(above)
        for at in above:
            can_join &= self.blocks[at].what == "tensor" and self.blocks[at].device != block.device
        number = self.add(block, row)
        if can_join:
            above += self.rows.pop(row)
        return number

    def row_of(self, number: int) -> int:
        """The row in which a block is so far."""
        return next(row for row, numbers in enumerate(self.rows) if number in numbers)

    def find_owners(self, module: str | None) -> list[int]:
        """The blocks that hold a module, its visits among them."""
        while module and module not in self.owners:
            module = module.rpartition(".")[0]
        if module is None:
            return []
        return self.owners.get(module, [])

    def find_target(self, device: DeviceId, module: str | None, number: int) -> int:
        """The block inside which something arrives, else the next that begins on the device, else one inside; -1 for none."""
        for at in self.find_owners(module):
            if self.blocks[at].device == device:
                return at
        inside = -1
        for at in self._in_order():
            block = self.blocks[at]
            if block.device != device or block.what not in ("module", "visit"):
                continue
            if block.start > number:
                return at
            if inside < 0 and module and block.path.startswith(f"{module}."):
                inside = at
        return inside

    def find_source(self, device: DeviceId, number: int, target: int) -> int:
        """The last block before it on the device that it leaves; -1 for none."""
        for at in reversed(self._in_order()):
            block = self.blocks[at]
            if at != target and block.device == device and 0 <= block.start < number:
                return at
        return -1

    def _in_order(self) -> list[int]:
        return list(chain.from_iterable(self.rows))

    def finish(self, columns: list[DeviceColumn]) -> Picture:
        """Return the picture. A used device has a column even if nothing else is known of it."""
        used = values_once(self.blocks, "device")
        known = values_once(columns, "device")
        columns = columns + [DeviceColumn(device, 0, ()) for device in used if device not in known]
        shown = []
        for column in columns:
            is_idle = column.device not in used
            if column.device.is_accelerator or not is_idle:
                shown.append(replace(column, is_idle=is_idle))
        shown.sort(key=lambda each: (each.device.kind != "cpu", device_order(each.device)))
        blocks = list(self.blocks)
        for row, numbers in enumerate(self.rows):
            for at in numbers:
                blocks[at] = replace(blocks[at], row=row)
        return Picture(tuple(shown), tuple(blocks), tuple(self.ways))


def _find_columns(snapshot: Snapshot, trace: Trace) -> list[DeviceColumn]:
    ends = {curve.device: curve.end for curve in trace.memory}
    ends |= {memory.device: memory for memory in snapshot.memory}
    return [_make_column(memory, trace) for memory in ends.values()]


def _make_column(memory: DeviceMemory, trace: Trace) -> DeviceColumn:
    curve = find_curve(trace, memory.device)
    refused = refused_bytes(curve)
    if curve is not None and curve.source == "allocator" and curve.peak is not None:
        return DeviceColumn(memory.device, memory.total, list_parts(curve.peak, ROLES), refused, is_peak=True)
    parts = dict[str, int]()
    for bar in memory_bars([memory], trace, with_cpu=True):
        parts = dict(bar.parts)
        parts.pop("free", 0)
    return DeviceColumn(memory.device, memory.total, tuple(parts.items()), refused)


def _add_call(sketch: Sketch, call: ParallelCall) -> None:
    """One call of DataParallel in the place of its module: the batch, the module, its replicas, outputs and gradients."""
    module = _find_wrapper(sketch, call)
    row = sketch.row_of(module)
    sketch.blocks[module] = replace(sketch.blocks[module], class_name=call.call.class_name, call=call)
    batch = sketch.add(_part_of(call, "batch", call.batch_on, total(call.replicas, "input_bytes"), call.samples), row)
    numbers = []
    for each in call.replicas:
        part = _part_of(call, "replica", each.device, each.parameter_bytes, each.samples, each.number)
        numbers.append(sketch.add(part, row + 2))
    sketch.rows[row + 2 : row + 2 + len(numbers)] = [numbers]
    _add_ways(sketch, call, numbers, "scatter", batch)
    _add_ways(sketch, call, numbers, "replicate", module)
    if call.gather_point is not None:
        outputs = sketch.add(_part_of(call, "outputs", call.gather_point, call.gathered_bytes), row + 3)
        _add_ways(sketch, call, numbers, "gather", outputs)
    if call.reduced_bytes:
        most = max(each.gradient_bytes for each in call.replicas)
        gradients = sketch.add(_part_of(call, "gradients", call.source, most), row + 4)
        _add_ways(sketch, call, numbers, "reduce", gradients)


def _find_wrapper(sketch: Sketch, call: ParallelCall) -> int:
    for at, block in enumerate(sketch.blocks):
        if block.paths == (call.wrapper,):
            return at
    return sketch.add(Block((call.wrapper,), "", call.source, 0))


def _add_ways(sketch: Sketch, call: ParallelCall, numbers: list[int], step: str, other: int) -> None:
    """Ways of one step between another block and the replicas on other devices, from them where results come back."""
    kind: Kind = "gradient" if step == "reduce" else "copy"
    for at, replica in zip(numbers, call.replicas, strict=True):
        moved = getattr(replica, _STEPS[step])
        if moved and sketch.blocks[other].device != replica.device:
            source, target = (other, at)
            if step in ("gather", "reduce"):
                source, target = (at, other)
            sketch.ways.append(Way(source, target, kind, moved, step=step, call=call))


def _part_of(call: ParallelCall, what: What, device: DeviceId, size: int, samples: int = 0, number: int = -1) -> Block:
    name = call.call.class_name
    return Block((call.wrapper,), name, device, size, what=what, number=number, samples=samples, call=call)


def _add_moves(sketch: Sketch, moves: list[Move], faults: tuple[Fault, ...]) -> None:
    """What crosses: in forward and loss from block to block, in backward on the same ways back."""
    there = [move for move in moves if move.phase in ("forward", "loss")]
    for move in there:
        if move.cause == "hook":
            _add_visit(sketch, move)
    found = group_by(there, lambda move: _ends_of(sketch, move))
    ways = dict[int, tuple[int, int]]()
    for (start, end, kind), group in found.items():
        source, target = place_ends(sketch, start, end, group, _name_strays(faults, group[0]))
        ways |= {id(move): (target, source) for move in group}
        sketch.ways.append(_way_of(source, target, kind, group))
    _add_backward(sketch, moves, ways)


def _ends_of(sketch: Sketch, move: Move) -> tuple[int | DeviceId, int | DeviceId, Kind]:
    """The blocks that a move leaves and reaches, or the devices where no block is, and its kind."""
    target = sketch.find_target(move.target, move.module, move.number)
    source = sketch.find_source(move.source, move.number, target)
    kind: Kind = "healed" if move.cause == "healed" else "copy"
    return move.source if source < 0 else source, move.target if target < 0 else target, kind


def place_ends(sketch: Sketch, start: object, end: object, group: list[Move], name: str) -> tuple[int, int]:
    """Return both ends of a path. An end outside of all blocks is the tensor itself, before its target or after its source."""
    first, size = group[0], total(group, "all_bytes")
    target = end if isinstance(end, int) else -1
    source = start if isinstance(start, int) else -1
    if source < 0:
        source = sketch.add_before(_make_tensor(first, first.source, size, name), target)
    if target < 0:
        target = sketch.add(_make_tensor(first, first.target, size, name), sketch.row_of(source) + 1)
    return source, target


def _make_tensor(move: Move, device: DeviceId, size: int, name: str) -> Block:
    wrong = move.cause == "healed"
    return Block(
        (move.module or "",), "", device, size, what="tensor", name=name, dtype=move.dtype, shape=move.shape, wrong=wrong
    )


def _way_of(source: int, target: int, kind: Kind, moves: list[Move]) -> Way:
    return Way(source, target, kind, total(moves, "all_bytes"), total(moves, "count"), tuple(moves))


def _name_strays(faults: Iterable[Fault], move: Move) -> str:
    """What the user's code calls a tensor that the trace has moved; "" for other moves, and if no fault knows."""
    for fault in faults:
        if move.cause != "healed" or fault.module != move.module:
            continue
        for stray in fault.operands:
            if stray.stray and (stray.shape, stray.device) == (move.shape, move.source):
                return stray.name
    return ""


def _add_visit(sketch: Sketch, move: Move) -> None:
    """A block whose weights are kept elsewhere visits the device on which a hook runs it."""
    inside = sketch.find_owners(move.module)
    if inside and all(sketch.blocks[at].device != move.target for at in inside):
        block = sketch.blocks[inside[0]]
        if block.device == move.source:
            sketch.add(replace(block, device=move.target, what="visit", unfolds=""), sketch.row_of(inside[0]) + 1)


def _add_backward(sketch: Sketch, moves: list[Move], ways: dict[int, tuple[int, int]]) -> None:
    """What crosses in backward on a way of the forward pass."""
    pairs = [pair for pair in with_forward_copies(moves) if pair[0].phase == "backward"]
    for ends, group in group_by(pairs, lambda pair: ways.get(id(pair[1]))).items():
        if ends is not None:
            sketch.ways.append(_way_of(ends[0], ends[1], "gradient", [move for move, _ in group]))


def _add_stops(sketch: Sketch, faults: Iterable[Fault]) -> None:
    """Where the step stopped, because tensors were on another device than the call needed."""
    for fault in faults:
        if fault.healed or fault.target is None or fault.module is None:
            continue
        target = sketch.find_target(fault.target, fault.module, fault.number)
        if target < 0:
            continue
        for stray in fault.operands:
            if stray.stray and stray.device != fault.target:
                sketch.ways.append(_make_stop(sketch, fault, stray, target))


def _make_stop(sketch: Sketch, fault: Fault, stray: Operand, target: int) -> Way:
    source = sketch.find_source(stray.device, fault.number, target)
    if source < 0:
        block = Block((fault.module or "",), "", stray.device, stray.bytes, what="tensor", name=stray.name,
                      dtype=stray.dtype, shape=stray.shape, wrong=True)  # fmt: skip
        source = sketch.add_before(block, target)
    return Way(source, target, "stopped", stray.bytes, fault=fault)
