"""What the profiler recorded as a trace: the records that a recording by modes gives, without what only modes know."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.modes.dispatch_mode import COPIES, MASKED, WAITING, WORDS
from devwidget.capture.recording.event_log import device_id, format_dtype
from devwidget.opening.allocations import FOREIGN, History, build_curve
from devwidget.opening.stacks import Stack
from devwidget.passive.event_tree import (
    EventWalk,
    Operator,
    ProfiledAllocation,
    ProfiledModuleCall,
    find_tensors,
    iterate_below,
    iterate_operators,
)
from devwidget.passive.places import EventPlace
from devwidget.records.device import DeviceId
from devwidget.records.memory import MemoryCurve
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import ModuleEvent, Move, OpEvent, Trace, Wait

_STEP = frozenset({"forward", "loss", "backward", "optimizer"})
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
        waits=tuple(_fold_waits(walk.operators)),
        steps=walk.steps,
        engine="profiler",
        not_checked=(UNKNOWN, THREADS) if walk.has_threads else (UNKNOWN,),
    )


def _fold_operators(operators: Iterable[Operator], start: int) -> Iterator[OpEvent]:
    folded: dict[tuple[Any, ...], list[Any]] = {}
    for operator in operators:
        place, inputs = operator.place, _input_devices(operator)
        key = operator.name, place.module, place.phase, _site_of(place), inputs, _output_device(operator, inputs)
        entry = folded.get(key)
        if entry is None:
            folded[key] = [1, operator.number, (operator.event.start_time_ns - start) / 1e9]
        else:
            entry[0] += 1
    for (name, module, phase, site, inputs, output), (count, number, started) in folded.items():
        ends = tuple(map(device_id, inputs)), None if output is None else device_id(output)
        yield OpEvent(name, module, phase, site, *ends, count, number, started)


def _site_of(place: EventPlace) -> Site | None:
    site, library = place.site, place.library
    if library is None:
        return site
    if site is None:
        return Site(library.file, library.line, library.text, "", library)
    return Site(site.file, site.line, site.text, site.function, library)


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
    nothing is told by nobody."""
    if not _gives_tensors(operator.event.name, operator.event.overload_name):
        return None
    if operator.name in COPIES and (target := _find_ends(operator.event)) is not None:
        device: torch.device = target[1].device
        return device
    if operator.taken is not None:
        return _CPU if operator.taken.type == "cpu" else operator.taken  # the allocator numbers the CPU, too
    if inputs:
        return next((device for device in inputs if device.type != "cpu"), inputs[0])
    return next((tensor.device for each in iterate_operators(operator.event) for tensor in find_tensors(each.inputs)), None)


@functools.cache
def _gives_tensors(name: str, overload: str) -> bool:
    """Whether a tensor comes out; not of what gives a number of Python, or writes into lists."""
    known = torch_internals.schemas_of(name) if "::" in name else ()  # the profiler names more than operators
    schema = next((each for each in known if each.overload_name == overload), None)
    return schema is None or any("Tensor" in str(each.type) for each in schema.returns)


def _fold_moves(operators: Iterable[Operator]) -> Iterator[Move]:
    folded: dict[tuple[Any, ...], list[Any]] = {}
    for operator in operators:
        copy = _find_copy(operator)
        if copy is None:
            continue
        source, target = copy
        place, seconds = operator.place, operator.event.duration_time_ns / 1e9
        key = source.device, target.device, tuple(target.sizes), target.dtype, place.module, place.phase, _site_of(place)
        entry = folded.setdefault(key, [operator.number, 0, seconds])
        entry[1] += 1
        entry[2] = seconds
    for (source, target, shape, dtype, module, phase, site), (number, count, seconds) in folded.items():
        size = torch.Size(shape).numel() * dtype.itemsize
        ends = device_id(source), device_id(target)
        yield Move(*ends, size, shape, format_dtype(dtype), module, phase, site, "explicit", seconds, number, count)


def _find_copy(operator: Operator) -> tuple[Any, Any] | None:
    """Source and target of an operator that copies to another device."""
    ends = _find_ends(operator.event) if operator.name in COPIES else None
    return ends if ends is not None and ends[0].device != ends[1].device else None


def _find_ends(event: Any) -> tuple[Any, Any] | None:
    for each in iterate_below(event):
        if each.name == "aten::copy_":
            target, source = list(find_tensors(each.extra_fields.inputs))[:2]
            return source, target
    return None


def _fold_waits(operators: Iterable[Operator]) -> Iterator[Wait]:
    """Fold the operators that give the host a value of an accelerator, or a size that depends on values."""
    folded: dict[Wait, list[Any]] = {}
    for operator in operators:
        device = _find_awaited(operator)
        if device is None:
            continue
        place, library = operator.place, operator.place.library
        waits = _site_of(place) if library is None or place.site is None else Site(library.file, library.line, library.text)
        called = None if library is None else place.site
        in_step = place.calls > 0 or place.phase in _STEP
        phase = place.phase or "other"
        call = WORDS.get(operator.name, operator.name)
        wait = Wait(call, device_id(device), place.module, phase, waits, library is not None, in_step=in_step, called=called)
        folded.setdefault(wait, [0, set()])
        folded[wait][0] += 1
    for wait, (count, _) in folded.items():
        yield Wait(**{**{name: getattr(wait, name) for name in wait.__slots__}, "count": count})


def _find_awaited(operator: Operator) -> torch.device | None:
    name, tensors = operator.name, operator.tensors
    if name in COPIES:
        copy = _find_copy(operator)
        inputs = operator.event.extra_fields.inputs
        later = name == "copy_" and len(inputs) > 2 and inputs[2] is True
        return copy[0].device if copy is not None and copy[1].device.type == "cpu" and not later else None
    if name not in WAITING and name not in MASKED:
        return None
    if not tensors or tensors[0].device.type in ("cpu", "meta"):
        return None
    masks = any(tensor.dtype in (torch.bool, torch.uint8) for tensor in tensors[1:])
    return tensors[0].device if name in WAITING or masks else None


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
