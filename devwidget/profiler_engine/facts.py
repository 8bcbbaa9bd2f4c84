"""What the profiler recorded as a trace: the records that a recording by modes gives, without what only modes know."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.recording.event_log import device_id, format_dtype
from devwidget.foreign_files.allocations import FOREIGN, History, build_curve
from devwidget.foreign_files.stacks import Stack
from devwidget.profiler_engine.adapter import overload_of
from devwidget.profiler_engine.event_tree import (
    EventWalk,
    Operator,
    ProfiledAllocation,
    ProfiledModuleCall,
    find_tensors,
    iterate_below,
    iterate_operators,
)
from devwidget.profiler_engine.places import site_of
from devwidget.profiler_engine.waits import find_copy, find_ends, fold_waits
from devwidget.records.device import DeviceId
from devwidget.records.memory import MemoryCurve
from devwidget.records.schema.message import Message
from devwidget.records.trace import ModuleEvent, Move, OpEvent, Trace

_CPU = torch.device("cpu")
_NUMBERS = frozenset({torch.float64, torch.int64, torch.bool, torch.complex128})
"""What torch makes of numbers of Python."""
UNKNOWN = Message(
    "{kind}: {reason}",
    kind=Message("names, births and lines of `a + b`"),
    reason=Message("torch's profiler, which recorded this, does not know them"),
)

THREADS = Message(
    "{kind}: {reason}",
    kind=Message("threads that the program started"),
    reason=Message("torch's profiler, which recorded this, does not see them"),
)


def read_facts(
    roots: Sequence[Any], model: nn.Module | None, named: Iterable[nn.Module] = (), *, has_memory: bool = False
) -> Trace:
    """The events of the profiler as records.

    Args:
        roots: the outermost events.
        model: the root of the paths; without it the outermost module is, if the program has a name for it.
        named: the modules of which it has.
        has_memory: allocations were recorded.
    """
    walk = EventWalk(roots, model, named, has_memory=has_memory)
    start = min((root.start_time_ns for root in roots), default=0)
    return Trace(
        moves=tuple(_fold_moves(walk.operators)),
        ops=tuple(_fold_operators(walk.operators, start)),
        modules=tuple(_fold_modules(walk.modules, start)),
        memory=tuple(_build_curves(walk.allocations)),
        waits=tuple(fold_waits(walk)),
        steps=walk.steps,
        engine="profiler",
        not_checked=(UNKNOWN, THREADS) if walk.has_threads else (UNKNOWN,),
    )


def _fold_operators(operators: Iterable[Operator], start: int) -> Iterator[OpEvent]:
    folded: dict[tuple[Any, ...], list[Any]] = {}
    for operator in operators:
        place, inputs = operator.place, _input_devices(operator)
        key = operator.name, place.module, place.phase, site_of(place), inputs, _output_device(operator, inputs)
        entry = folded.get(key)
        if entry is None:
            folded[key] = [1, operator.number, (operator.event.start_time_ns - start) / 1e9]
        else:
            entry[0] += 1
    for (name, module, phase, site, inputs, output), (count, number, started) in folded.items():
        ends = tuple(map(device_id, inputs)), None if output is None else device_id(output)
        yield OpEvent(name, module, phase, site, *ends, count, number, started)


def _input_devices(operator: Operator) -> tuple[torch.device, ...]:
    """Devices, each once. In `x * 2` the number is a tensor of the host in C++, which no mode sees; a tensor of one such number
    beside others that are elsewhere cannot be told from it."""
    found = tuple(dict.fromkeys(tensor.device for tensor in operator.tensors))
    if len(found) > 1 and all(_may_be_number(tensor) for tensor in operator.tensors if tensor.device.type == "cpu"):
        return tuple(device for device in found if device.type != "cpu")
    return found


def _may_be_number(tensor: Any) -> bool:
    return not tensor.sizes and tensor.dtype in _NUMBERS


def _output_device(operator: Operator, inputs: tuple[torch.device, ...]) -> torch.device | None:
    """Where the result is: what a copy wrote into, where memory was taken for it, or where it was computed. An empty one of
    nothing is told by nobody, nor where that is which a device was named for."""
    gives_tensor, takes_device = _find_schema(operator.event.name, overload_of(operator.event))
    if not gives_tensor:
        return None
    if (ends := find_ends(operator)) is not None:
        device: torch.device = ends.target.device
        return device
    taken = operator.taken
    if taken is not None and (takes_device or taken.type != "cpu" or not inputs):
        return _CPU if taken.type == "cpu" else taken  # the allocator numbers the CPU, too
    if inputs and takes_device:
        return next(_find_written(operator.event), None)
    if inputs:
        return next((device for device in inputs if device.type != "cpu"), inputs[0])
    return next((tensor.device for each in iterate_operators(operator.event) for tensor in find_tensors(each.inputs)), None)


def _find_written(event: Any) -> Iterator[torch.device]:
    """Where is what an operator fills that it has made."""
    for each in iterate_below(event):
        if each is not event and each.name.endswith("_"):
            yield from (tensor.device for tensor in find_tensors(each.extra_fields.inputs))


@functools.cache
def _find_schema(name: str, overload: str) -> tuple[bool, bool]:
    """Whether a tensor comes out, and whether a device is named. The profiler names more than operators."""
    known = torch_internals.schemas_of(name) if "::" in name else ()
    schema = next((each for each in known if each.overload_name == overload), None)
    if schema is None:
        return True, False
    return any("Tensor" in str(each.type) for each in schema.returns), any(each.name == "device" for each in schema.arguments)


def _fold_moves(operators: Iterable[Operator]) -> Iterator[Move]:
    folded: dict[tuple[Any, ...], list[Any]] = {}
    for operator in operators:
        copy = find_copy(operator)
        if copy is None:
            continue
        source, target, _ = copy
        place, seconds = operator.place, operator.event.duration_time_ns / 1e9
        key = source.device, target.device, tuple(target.sizes), target.dtype, place.module, place.phase, site_of(place)
        entry = folded.setdefault(key, [operator.number, 0, seconds])
        entry[1] += 1
        entry[2] = seconds
    for (source, target, shape, dtype, module, phase, site), (number, count, seconds) in folded.items():
        size = torch.Size(shape).numel() * dtype.itemsize
        ends = device_id(source), device_id(target)
        yield Move(*ends, size, shape, format_dtype(dtype), module, phase, site, "explicit", seconds, number, count)


def _fold_modules(calls: Iterable[ProfiledModuleCall], start: int) -> Iterator[ModuleEvent]:
    """Fold the calls of one path. The profiler does not say what went in and came out."""
    folded: dict[str, list[ProfiledModuleCall]] = {}
    for call in sorted(calls, key=lambda each: each.number):
        if call.is_registered:
            folded.setdefault(call.place.module or "", []).append(call)
    for path, of_path in folded.items():
        first = of_path[0]
        seconds = sum(each.event.duration_time_ns for each in of_path) / 1e9
        name, started = first.event.extra_fields.module.cls_name, (first.event.start_time_ns - start) / 1e9
        yield ModuleEvent(path, name, (), (), len(of_path), seconds, False, first.number, started, stopped=first.stopped)


def _build_curves(allocations: Iterable[ProfiledAllocation]) -> Iterator[MemoryCurve]:
    by_device: dict[torch.device, list[ProfiledAllocation]] = {}
    for allocation in allocations:
        device = allocation.event.extra_fields.device
        if device.type != "cpu":
            by_device.setdefault(device, []).append(allocation)
    for device, of_device in by_device.items():
        yield build_device_curve(device_id(device), of_device)


def build_device_curve(device: DeviceId, allocations: Sequence[ProfiledAllocation]) -> MemoryCurve:
    """The curve of one device; what was there before the profiler began is foreign."""
    history, living = History(), dict[tuple[int, int], int]()
    first = allocations[0].event.extra_fields
    before = first.total_allocated - first.alloc_size
    if before > 0:
        history.add_allocation(before, FOREIGN, 0)
    for allocation in allocations:
        fields, place = allocation.event.extra_fields, allocation.place
        key = fields.ptr, abs(fields.alloc_size)
        if fields.alloc_size > 0:
            stack = Stack(place.phase or "other", place.module, place.site)
            living[key] = history.add_allocation(fields.alloc_size, stack, allocation.number)
        else:
            where = living.pop(key, None)
            if where is None:
                where = history.split_foreign(-fields.alloc_size)
            history.ended[where], history.ended_in[where] = allocation.number, place.phase or "other"
        history.marks.append((allocation.number, fields.alloc_size))
    return build_curve(device, history, max(allocations[-1].event.extra_fields.total_reserved, 0))
