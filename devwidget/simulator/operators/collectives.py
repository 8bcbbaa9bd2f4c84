"""Collectives of tensors on virtual GPUs, which gloo carries between the processes: by NCCL's rules, and in its words.

The tensors are really on the CPU, and torch finds the backend of a group by where tensors really are. A group of NCCL has
none for the CPU, as on CUDA; so what tensors on GPUs ask of it is asked of another group of the same ranks in its place.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from devwidget.capture.recording.collectives import group_in
from devwidget.simulator.devices import cuda_errors, labels, machine
from devwidget.simulator.devices.labels import CPU, TEMPORARY
from devwidget.simulator.operators.op_schema import OpSchema
from devwidget.simulator.torch_internals import OpOverload

Run = Callable[[OpSchema, OpOverload, tuple[Any, ...], dict[str, Any]], Any]
GROUP, GROUP_NAME = "process_group", "group_name"
PEERS = ("dst", "src")


class Carrier(Protocol):
    """What carries the tensors of one group."""

    def boxed_group(self) -> Any:
        """The group for tensors that are really on the CPU, as operators take it."""

    def check_gpu(self, label: int, peer: int | None) -> None:
        """Refuse a GPU that another rank has; `peer` is the other one where only two talk."""

    def remember_work(self, work: Any) -> None:
        """What was begun, for who waits for all of it at once."""


CARRIERS: weakref.WeakKeyDictionary[Any, Carrier] = weakref.WeakKeyDictionary()
"""Process group -> what carries its tensors on GPUs; a group without NCCL is not here."""


class _Lenient(threading.local):
    is_asked = False


_lenient = _Lenient()


@contextlib.contextmanager
def take_every_tensor() -> Iterator[None]:
    """For parts of torch in C++ that move to the device of a parameter what they send: they find that on the CPU."""
    before, _lenient.is_asked = _lenient.is_asked, True
    try:
        yield
    finally:
        _lenient.is_asked = before


def carrier_of(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Carrier | None:
    """What carries the tensors of a call, if its group has NCCL."""
    for name in (GROUP, GROUP_NAME) if CARRIERS else ():
        if name in schema.names:
            given = schema.bind_args(args, kwargs)[name]
            return CARRIERS.get(group_in(given))
    return None


def run_collective(
    carrier: Carrier, schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run
) -> Any:
    """One operator of `c10d` whose group has NCCL.

    Raises:
        ValueError, DistBackendError: in the words of NCCL's backend, for tensors that it does not take.
    """
    given = schema.bind_args(args, kwargs)
    tensors = list(_iterate_tensors(given.values()))
    if not _lenient.is_asked and all(labels.label_of(tensor) == CPU for tensor in tensors):
        return run(schema, func, args, kwargs)  # by the group itself, which has a backend for the CPU, or says that it has none
    label = _check_tensors(tensors)
    _check_layout(given)
    carrier.check_gpu(label, next((given[name] for name in PEERS if name in given), None))
    carried = {name: _carried(value) for name, value in given.items()}
    carried[GROUP] = carrier.boxed_group()
    if "tag" in carried:
        carried["tag"] = 0  # NCCL has none: what two ranks send each other comes in order
    result = run(schema, func, tuple(carried[name] for name in schema.names if name in carried), {})
    for tensor in tensors:
        if labels.label_of(tensor) == TEMPORARY:
            labels.put_label(tensor, label)
    carrier.remember_work(result[-1] if isinstance(result, tuple) else result)
    return result


def _iterate_tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _iterate_tensors(value)


def _check_tensors(tensors: list[torch.Tensor]) -> int:
    """The GPU of all tensors. Source: `check_gpu_single_tensor` and `check_gpu_tensors_same_device` in `ProcessGroupNCCL.cpp`."""
    found = {labels.label_of(tensor) for tensor in tensors} - {TEMPORARY}
    if _lenient.is_asked:
        found.discard(CPU)
    if CPU in found or any(tensor.is_sparse for tensor in tensors):
        raise ValueError("Tensors must be CUDA and dense")
    if len(found) > 1:
        raise ValueError("Expected list of tensors on the same device")
    for tensor in tensors:
        if tensor.dtype in UNKNOWN_TYPES:
            raise cuda_errors.unknown_to_nccl(tensor.dtype)
    return found.pop() if found else machine.current_index()


UNKNOWN_TYPES = {torch.int16, torch.complex32}
FLOAT8 = {getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)}


def _check_layout(given: dict[str, Any]) -> None:
    """Tensors that are sent as they lie in memory; parts of a list of lists are copied together first."""
    for value in given.values():
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor) and not (
                tensor.is_contiguous() or tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
            ):
                raise ValueError("Tensors must be contiguous")


def _carried(value: Any) -> Any:
    """What gloo does not know by its type goes as bytes."""
    if isinstance(value, torch.Tensor):
        return value.view(torch.uint8) if value.dtype in FLOAT8 else value
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (torch.Tensor, list, tuple)):
        return [_carried(each) for each in value]
    return value
