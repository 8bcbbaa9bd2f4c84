"""The log of one recording. Equal events are folded, so that long loops stay small."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import is_from_handler
from devwidget.capture.object_fields import class_name
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.capture.tensors import shape_of
from devwidget.records.device import DeviceId
from devwidget.records.errors import error_text
from devwidget.records.schema.message import Message
from devwidget.records.trace import Cause, Fault, ModuleEvent, Move, Operand, OpEvent, Phase

Devices = tuple[torch.device, ...] | torch.device | None
Op = tuple[str, str | None, Phase, int, Devices, torch.device | None]
"""Name, module, phase, id of the line, and devices of inputs and output. It cannot be part of a cycle, so the garbage
collector stops tracking the tuple and does not visit the operators of a large model again and again.
"""
_R = TypeVar("_R")
MOST_FAULTS = 1000
"""Faults kept. A loop that fails ten thousand times in new ways is not clearer with all of them."""


@dataclass(slots=True)
class OpEntry:
    """The runs of one operator at one line, added up."""

    site: RawSite | None
    shape: tuple[int, ...]
    number: int
    started: float
    count: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class ModuleEntry:
    """The calls of one module, or of one replica of it, added up."""

    class_name: str
    number: int
    started: float
    stopped: int = -1
    calls: int = 0
    seconds: float = 0.0
    failed: bool = False
    inputs: tuple[torch.device, ...] = ()
    outputs: tuple[torch.device, ...] = ()
    input_shapes: tuple[tuple[int, ...], ...] = ()
    output_shapes: tuple[tuple[int, ...], ...] = ()


class Log:
    """Events, thread-safe. Records are built on request."""

    def __init__(self, started: float, first_number: int = 0) -> None:
        self._started = started
        self.faults: list[Fault] = []
        self.troubles: list[str] = []
        self.number: Callable[[], int] = itertools.count(first_number).__next__
        """The next number of an event. Used for each operator, so it is not a method."""
        self._lock = threading.Lock()
        self._faults_met: set[tuple[Any, ...]] = set()
        self._moves: dict[tuple[Any, ...], list[Any]] = {}
        self.ops: dict[Op, OpEntry] = {}
        self._modules: dict[tuple[str, int], ModuleEntry] = {}

    def op_entry(self, key: Op, site: RawSite | None, result: torch.Tensor | None) -> OpEntry:
        """Return the entry of an operator that runs here for the first time. The caller counts."""
        shape = read_shape(result) if result is not None else ()
        started = time.perf_counter() - self._started
        return self.ops.setdefault(key, OpEntry(site, shape, self.number(), started))

    def log_transfer(
        self,
        source: torch.device,
        target: torch.device,
        tensors: Sequence[torch.Tensor],
        module: str | None,
        phase: Phase,
        site: RawSite | None,
        cause: Cause,
        seconds: float = 0.0,
    ) -> None:
        """Log a transfer from `source` to `target` of one tensor, or of several copied together (shape and dtype of the
        first).
        """
        nbytes = sum(bytes_of(tensor) for tensor in tensors)
        key = (source, target, tuple(tensors[0].shape), tensors[0].dtype, nbytes, len(tensors), module, phase, site, cause)
        with self._lock:
            entry = self._moves.setdefault(key, [0, self.number(), 0.0])
            entry[0] += 1
            entry[2] = seconds

    def module_entry(self, path: str, replica: int, module: nn.Module, number: int, started: float) -> ModuleEntry:
        """Return the entry of a module, created at its first call."""
        entry = self._modules.get((path, replica))
        if entry is None:
            fresh = ModuleEntry(class_name(type(module)), number, started - self._started)
            entry = self._modules.setdefault((path, replica), fresh)
        return entry

    def is_new_fault(self, key: tuple[Any, ...]) -> bool:
        """Return whether a fault with this place and creation site is new."""
        new = key not in self._faults_met
        self._faults_met.add(key)
        return new

    def log_fault(self, fault: Fault) -> Fault:
        """Log a failed call; return it with its number."""
        numbered = replace(fault, number=self.number())
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(numbered)
        return numbered

    def log_trouble(self, error: Exception) -> None:
        """Log an error of devwidget itself; the user's program continues.

        Raises:
            Exception: the same, if a signal interrupted devwidget: it belongs to the user.
        """
        if is_from_handler(error):
            raise error
        self.add_note(Message("{kind}: {reason}", kind=Message("recorder"), reason=error_text(error)))

    def add_note(self, text: str) -> None:
        """Add a note on something that the trace cannot show."""
        if text not in self.troubles:
            self.troubles.append(text)

    # -- records

    def list_facts(self) -> dict[str, Any]:
        """Return faults, moves, operators and modules in order, and what could not be recorded."""
        return {
            "faults": tuple(self.faults),
            "moves": _sort_records(self._list_moves()),
            "ops": _sort_records(self._list_ops()),
            "modules": _sort_records(self._list_modules()),
            "not_checked": tuple(self.troubles),
        }

    def _list_moves(self) -> Iterator[Move]:
        for (source, target, shape, dtype, nbytes, tensors, module, phase, site, cause), entry in self._moves.items():
            count, number, seconds = entry
            known = device_id(source), device_id(target), nbytes, shape, format_dtype(dtype)
            yield Move(*known, module, phase, to_site(site), cause, seconds, number, count, tensors)

    def _list_ops(self) -> Iterator[OpEvent]:
        sites = {raw: to_site(raw) for raw in {entry.site for entry in self.ops.values()}}
        for (name, module, phase, _, inputs, out), entry in self.ops.items():
            output = device_id(out) if out is not None else None
            known = (name, module, phase, sites[entry.site], _each_id(inputs), output)
            yield OpEvent(*known, entry.count, entry.number, entry.started, entry.shape, entry.seconds)

    def _list_modules(self) -> Iterator[ModuleEvent]:
        for (path, copy), e in self._modules.items():
            inputs, outputs = _device_ids(e.inputs), _device_ids(e.outputs)
            yield make_record(ModuleEvent, e, path=path, replica=copy, inputs=inputs, outputs=outputs)


def _sort_records(records: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(records, key=lambda record: record.number))


@functools.cache
def device_id(device: torch.device) -> DeviceId:
    """Return the `DeviceId` of a torch device."""
    return DeviceId(device.type, device.index)


def make_record(kind: Callable[..., _R], draft: object, **more: Any) -> _R:
    """Make a record from the fields of a draft, with `Site` and `DeviceId`; `more` has the fields that the draft lacks."""
    for name in _names_of(kind):
        if name not in more and hasattr(draft, name):
            more[name] = _plain_fact(getattr(draft, name))
    return kind(**more)


@functools.cache
def _names_of(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _plain_fact(value: Any) -> Any:
    if isinstance(value, torch.device):
        return device_id(value)
    if isinstance(value, RawSite):
        return to_site(value)
    return value


def read_shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor; () while `torch.jit` traces, which would record the read of a size."""
    if torch_internals.tracing_state() is None:
        return shape_of(tensor)
    return ()


def join_devices(devices: tuple[torch.device, ...], more: Iterable[torch.device]) -> tuple[torch.device, ...]:
    """Return each device once."""
    return tuple(dict.fromkeys((*devices, *more)))


@functools.cache
def _each_id(devices: Devices) -> tuple[DeviceId, ...]:
    if devices is None:
        return ()
    return tuple(map(device_id, devices if type(devices) is tuple else (devices,)))


@functools.cache
def _device_ids(devices: tuple[torch.device, ...]) -> tuple[DeviceId, ...]:
    return tuple(sorted((device_id(d) for d in devices), key=str))


def format_dtype(dtype: torch.dtype) -> str:
    """Return `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def bytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; only of its values if the layout has no `nbytes` (sparse)."""
    if tensor.layout is torch.strided:
        return tensor.numel() * tensor.element_size()
    if tensor.layout is torch.sparse_coo:
        return tensor._values().numel() * tensor.element_size()
    return 0


def operand_of(tensor: torch.Tensor, argument: str, expression: str, **fields: Any) -> Operand:
    """Describe a tensor argument in its current state; `fields` are further fields of `Operand`."""
    shape, dtype, device = tuple(tensor.shape), format_dtype(tensor.dtype), device_id(tensor.device)
    fields.setdefault("requires_grad", tensor.requires_grad)
    return Operand(argument, expression, shape, dtype, device, bytes_of(tensor), **fields)


def lost_operand(device: DeviceId, argument: str, expression: str, dtype: str = "", **fields: Any) -> Operand:
    """Describe a tensor that no longer exists, or a non-tensor: only its device is known, from a message or the source."""
    return Operand(argument, expression, (), dtype, device, 0, **fields)
