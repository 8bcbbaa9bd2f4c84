"""A model on its devices, as it is, or as a step used it: a column for each device, its blocks, what crosses."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.memory import ROLES, DeviceMemory, MemoryCurve
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Fault, Move, Operand, Trace
from devwidget.views.blocks import Block, Folding, What
from devwidget.views.hops import with_forward_copies
from devwidget.views.memory import memory_bars
from devwidget.views.parallel import ParallelCall, parallel_calls
from devwidget.views.placement import PlacementTable, device_order
from devwidget.views.sums import total, values_once

Kind = Literal["copy", "gradient", "healed", "stopped"]
_STEPS = ("scatter", "replicate", "gather", "reduce")


@dataclass(frozen=True, slots=True)
class DeviceColumn:
    """One device.

    Attributes:
        device: which.
        capacity: bytes that it has, 0 if unknown.
        parts: what its bytes are for, and how many: at the peak of the step where that is known, else now.
        refused: what the first allocation that did not fit would have come to, 0 if all did.
        is_peak: `parts` are those of the peak.
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
        return sum(size for _, size in self.parts)


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
        step, call, number: of DataParallel, and of which of its replicas.
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
    number: int = -1


@dataclass(frozen=True, slots=True)
class Picture:
    """Columns from left to right, blocks in rows from top to bottom in the order in which they run, ways between them."""

    columns: tuple[DeviceColumn, ...]
    blocks: tuple[Block, ...]
    ways: tuple[Way, ...]
    elsewhere: tuple[Move, ...] = ()
    """What crosses in backward on no way of the forward pass."""


def make_picture(
    snapshot: Snapshot, table: PlacementTable, trace: Trace | None = None, *, opened: Collection[str] = (), every: bool = False
) -> Picture:
    """The picture of a model, and of one step of it.

    Args:
        table: of the snapshot.
        opened: what a reader has unfolded, by `Block.unfolds`.
        every: each block by itself, equal ones too.
    """
    calls = [call for call in parallel_calls(trace) if call.replicas] if trace is not None else []
    folding = Folding(table, trace, whole={call.wrapper for call in calls}, opened=opened, every=every)
    sketch = Sketch()
    for block in folding.choose():
        sketch.add(block)
    for call in calls:
        _add_call(sketch, call)
    if trace is not None:
        moves = [move for move in trace.moves if move.source != move.target]
        if calls:
            moves = [move for move in moves if move.cause not in _STEPS]
        _add_moves(sketch, moves, trace.faults)
        _add_stops(sketch, trace.faults)
    return sketch.finish(_find_columns(snapshot, trace))


@dataclass(slots=True)
class Sketch:
    """A picture in the making: blocks by number, and which of them lie beside each other."""

    blocks: list[Block] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    elsewhere: tuple[Move, ...] = ()
    owners: dict[str, list[int]] = field(default_factory=dict)
    """Path of a module -> the blocks that it is a part of."""

    def add(self, block: Block, row: int | None = None) -> int:
        """A block in a row of its own, the last or before another; return its number."""
        self.blocks.append(block)
        if block.what in ("module", "visit"):
            for path in block.paths:
                self.owners.setdefault(path, []).append(len(self.blocks) - 1)
        self.rows.insert(len(self.rows) if row is None else row, [len(self.blocks) - 1])
        return len(self.blocks) - 1

    def add_before(self, block: Block, target: int) -> int:
        """A tensor above the block that it goes to, beside others that do; in the last row if that block is not there yet."""
        row = self.row_of(target) if target >= 0 else len(self.rows)
        above = [self.blocks[at] for at in self.rows[row - 1]] if row else []
        number = self.add(block, row)
        if above and all(each.what == "tensor" and each.device != block.device for each in above):
            self.rows[row - 1] += self.rows.pop(row)
        return number

    def row_of(self, number: int) -> int:
        """The row in which a block is so far."""
        return next(row for row, numbers in enumerate(self.rows) if number in numbers)

    def find_owners(self, module: str | None) -> list[int]:
        """The blocks that hold a module, its visits among them."""
        while module and module not in self.owners:
            module = module.rpartition(".")[0]
        return self.owners.get(module, []) if module is not None else []

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
        return [at for row in self.rows for at in row]

    def finish(self, columns: list[DeviceColumn]) -> Picture:
        """The picture; a device that is used and of which nothing is known has a column too."""
        used = values_once(self.blocks, "device")
        known = set(values_once(columns, "device"))
        columns += [DeviceColumn(device, 0, ()) for device in used if device not in known]
        shown = [
            replace(each, is_idle=each.device not in used)
            for each in columns
            if each.device in used or each.device.is_accelerator
        ]
        shown.sort(key=lambda each: (each.device.kind != "cpu", device_order(each.device)))
        blocks = list(self.blocks)
        for row, numbers in enumerate(self.rows):
            for at in numbers:
                blocks[at] = replace(blocks[at], row=row)
        return Picture(tuple(shown), tuple(blocks), tuple(self.ways), self.elsewhere)


def _find_columns(snapshot: Snapshot, trace: Trace | None) -> list[DeviceColumn]:
    curves = {curve.device: curve for curve in trace.memory} if trace is not None else {}
    ends = {device: curve.end for device, curve in curves.items()}
    for memory in snapshot.memory:
        ends[memory.device] = memory
    return [_make_column(memory, curves.get(device), trace) for device, memory in ends.items()]


def _make_column(memory: DeviceMemory, curve: MemoryCurve | None, trace: Trace | None) -> DeviceColumn:
    refused, peak = 0, None
    if curve is not None and curve.refused:
        refused = curve.refused[0].allocated + curve.refused[0].bytes
    if curve is not None and curve.source == "allocator":
        peak = curve.peak
    if peak is not None:
        parts = tuple((role, size) for role in ROLES if (size := getattr(peak, role)))
        return DeviceColumn(memory.device, memory.total, parts, refused, is_peak=True)
    (bar,) = memory_bars([memory], trace, with_cpu=True) or (None,)
    parts = tuple(part for part in bar.parts if part[0] != "free") if bar is not None else ()
    return DeviceColumn(memory.device, memory.total, parts, refused)


def _add_call(sketch: Sketch, call: ParallelCall) -> None:
    """One call of DataParallel in the place of its module: the batch, the module, its replicas, outputs and gradients."""
    module = next((at for at, block in enumerate(sketch.blocks) if block.paths == (call.wrapper,)), None)
    row = sketch.row_of(module) if module is not None else len(sketch.rows)
    if module is None:
        module = sketch.add(Block((call.wrapper,), "", call.source, 0), row)
    sketch.blocks[module] = replace(sketch.blocks[module], class_name=call.call.class_name, call=call)
    batch_on = call.batch_on[0] if call.batch_on else call.source
    batch = sketch.add(_part_of(call, "batch", batch_on, total(call.replicas, "input_bytes"), call.samples), row)
    numbers = []
    for each in call.replicas:
        part = _part_of(call, "replica", each.device, each.parameter_bytes, each.samples, each.number)
        numbers.append(sketch.add(part, row + 2))
    sketch.rows[row + 2 : row + 2 + len(numbers)] = [numbers]
    ways = _Ways(sketch, call, numbers)
    ways.add("scatter", batch, "input_bytes")
    ways.add("replicate", module, "parameter_bytes")
    if call.gather_point is not None:
        outputs = sketch.add(_part_of(call, "outputs", call.gather_point, call.gathered_bytes), row + 3)
        ways.add("gather", outputs, "output_bytes", back=True)
    if call.reduced_bytes:
        most = max(each.gradient_bytes for each in call.replicas)
        gradients = sketch.add(_part_of(call, "gradients", call.source, most), row + 4)
        ways.add("reduce", gradients, "gradient_bytes", back=True)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Between the replicas of a call and another block."""

    sketch: Sketch
    call: ParallelCall
    numbers: list[int]

    def add(self, step: str, other: int, size_of: str, *, back: bool = False) -> None:
        """Ways of one step for the replicas on other devices."""
        kind: Kind = "gradient" if step == "reduce" else "copy"
        for at, replica in zip(self.numbers, self.call.replicas, strict=True):
            moved = getattr(replica, size_of)
            if moved and self.sketch.blocks[other].device != replica.device:
                ends = (at, other) if back else (other, at)
                way = Way(*ends, kind, moved, step=step, call=self.call, number=replica.number)
                self.sketch.ways.append(way)


def _part_of(call: ParallelCall, what: What, device: DeviceId, size: int, samples: int = 0, number: int = -1) -> Block:
    name = call.call.class_name
    return Block((call.wrapper,), name, device, size, what=what, number=number, samples=samples, call=call)


def _add_moves(sketch: Sketch, moves: list[Move], faults: tuple[Fault, ...]) -> None:
    """What crosses: in forward and loss from block to block, in backward on the same ways back."""
    there = [move for move in moves if move.phase in ("forward", "loss")]
    for move in there:
        if move.cause == "hook":
            _add_visit(sketch, move)
    found: dict[tuple[object, object, Kind], list[Move]] = {}
    for move in there:
        kind: Kind = "healed" if move.cause == "healed" else "copy"
        target = sketch.find_target(move.target, move.module, move.number)
        source = sketch.find_source(move.source, move.number, target)
        found.setdefault((source if source >= 0 else move.source, target if target >= 0 else move.target, kind), []).append(
            move
        )
    ways = dict[int, tuple[int, int]]()
    for (start, end, kind), group in found.items():
        source, target = place_ends(sketch, start, end, group, _name_strays(faults, group[0]) if kind == "healed" else "")
        ways |= {id(move): (target, source) for move in group}
        sketch.ways.append(_way_of(source, target, kind, group))
    _add_backward(sketch, moves, ways)


def place_ends(sketch: Sketch, start: object, end: object, group: list[Move], name: str) -> tuple[int, int]:
    """Both ends of a way; one that is no block is the tensor itself, before its target or behind its source."""
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
    """What the user's code calls a tensor that the trace has moved; "" if no fault tells."""
    for fault in faults:
        for stray in fault.operands if fault.module == move.module else ():
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
    """What crosses in backward, with and without a way of the forward pass."""
    found: dict[tuple[int, int], list[Move]] = {}
    elsewhere: list[Move] = []
    for move, copy in with_forward_copies(moves):
        if move.phase == "backward":
            way = ways.get(id(copy))
            (elsewhere if way is None else found.setdefault(way, [])).append(move)
    for (source, target), group in found.items():
        sketch.ways.append(_way_of(source, target, "gradient", group))
    sketch.elsewhere = tuple(elsewhere)


def _add_stops(sketch: Sketch, faults: Iterable[Fault]) -> None:
    """Where the step stopped, because tensors were on another device than the call needed."""
    for fault in faults:
        if fault.healed or fault.target is None or fault.module is None:
            continue
        target = sketch.find_target(fault.target, fault.module, fault.number)
        for stray in fault.operands if target >= 0 else ():
            if stray.stray and stray.device != fault.target:
                sketch.ways.append(_make_stop(sketch, fault, stray, target))


def _make_stop(sketch: Sketch, fault: Fault, stray: Operand, target: int) -> Way:
    source = sketch.find_source(stray.device, fault.number, target)
    if source < 0:
        block = Block((fault.module or "",), "", stray.device, stray.bytes, what="tensor", name=stray.name,
                      dtype=stray.dtype, shape=stray.shape, wrong=True)  # fmt: skip
        source = sketch.add_before(block, target)
    return Way(source, target, "stopped", stray.bytes, fault=fault)
