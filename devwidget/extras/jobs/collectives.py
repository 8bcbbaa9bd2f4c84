"""Collectives of tensors on virtual GPUs, which gloo carries between the processes: by NCCL's rules, and in its words.

The tensors are really on the CPU, and torch finds the backend of a group by where tensors really are. A group of NCCL has
none for the CPU, as on CUDA; so what tensors on GPUs ask of it is asked of another group of the same ranks in its place.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import torch

from devwidget.capture.torch_internals import group_in
from devwidget.gpus import labels
from devwidget.gpus.call import Call
from devwidget.gpus.errors import type_text
from devwidget.gpus.labels import CPU, TEMPORARY
from devwidget.gpus.operators import run_foreign, run_on_cpu
from devwidget.gpus.torch_internals import DispatchKey, graph_task, suggest_memory_format

GROUP, GROUP_NAME = "process_group", "group_name"
PEERS = ("dst", "src")


CARRIERS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Process group -> the `VirtualNccl` that carries its tensors on GPUs; a group without NCCL is not here."""


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


def _find_carrier(call: Call) -> Any:
    """What carries the tensors of a call; None if its group has no NCCL."""
    if not CARRIERS:
        return None
    for name in (GROUP, GROUP_NAME):
        if name in call.schema.names:
            return CARRIERS.get(group_in(call[name]))
    return None


def find_parts(call: Call) -> Callable[..., Any] | None:
    """What runs a functional collective, which C++ makes of others that are to be seen one by one if its group has NCCL."""
    if _find_carrier(call) is None:
        return None
    return functools.partial(call.func._op_dk, DispatchKey.CompositeExplicitAutograd)


def run_in_group(call: Call) -> Any:
    """One operator of `c10d`.

    Raises:
        ValueError, DistBackendError: in the words of NCCL's backend, for tensors that it does not take.
    """
    carrier = _find_carrier(call)
    if carrier is None:
        return run_foreign(call)
    schema = call.schema
    given = {**dict(zip(schema.names, call.args, strict=False)), **call.kwargs}
    tensors = list(_iterate_tensors(given.values()))
    takes_every = _lenient.is_asked or _is_from_reducer(tensors)
    if not takes_every and all(labels.label_of(tensor) == CPU for tensor in tensors):
        # By the group itself, which has a backend for the CPU, or says that it has none.
        return run_on_cpu(call)
    label = _find_gpu(tensors, takes_every)
    _check_layout(given)
    if label is not None:
        carrier.check_gpu(label, next((given[name] for name in PEERS if name in given), None))
    shape = _flatten if schema.name in IN_ONE_PIECE else _view_plain
    carried = {name: _map_tensors(value, shape) for name, value in given.items()}
    carried[GROUP] = carrier.carrying.boxed()
    if "tag" in carried:
        carried["tag"] = 0  # NCCL has none: what two ranks send each other comes in order
    result: Any
    if schema.name == GATHER and _is_uneven(results := carried[schema.names[0]][0]):
        result = (results, carrier.gather_uneven(results, carried[schema.names[1]][0]))
    else:
        result = run_on_cpu(Call(schema, call.func, tuple(carried[name] for name in schema.names if name in carried), {}))
    for tensor in tensors:
        if label is not None and labels.label_of(tensor) == TEMPORARY:
            labels.put_label(tensor, label)
    if not isinstance(result, tuple):
        carrier.remember_work(result)
        return result
    carrier.remember_work(result[-1])
    return given[schema.names[0]], result[-1]  # what it writes to is its first argument


def _iterate_tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _iterate_tensors(value)


def _is_from_reducer(tensors: list[torch.Tensor]) -> bool:
    """Whether DDP's reducer sends which parameters were used, in backward, from a tensor that it took from the CPU."""
    return graph_task() >= 0 and len(tensors) == 1 and tensors[0].dtype is torch.int32 and tensors[0].dim() == 1


def _find_gpu(tensors: list[torch.Tensor], takes_every: bool) -> int | None:
    """The GPU of all tensors; None if C++ does not tell.

    Source: `check_gpu_single_tensor` and `check_gpu_tensors_same_device` in `ProcessGroupNCCL.cpp`.
    """
    found = {labels.label_of(tensor) for tensor in tensors} - {TEMPORARY}
    if takes_every:
        found.discard(CPU)
    if CPU in found or any(tensor.is_sparse for tensor in tensors):
        raise ValueError("Tensors must be CUDA and dense")
    if len(found) > 1:
        raise ValueError("Expected list of tensors on the same device")
    for dtype in UNKNOWN_TYPES.intersection(map(attrgetter("dtype"), tensors)):
        # Source: `getNcclDataType` in `ProcessGroupNCCL.cpp`.
        kind = type_text(dtype, False).removeprefix("torch.").removesuffix("Tensor")
        raise TypeError(f"Input tensor data type is not supported for NCCL process group: {kind}")
    return found.pop() if found else None


UNKNOWN_TYPES = {torch.int16, torch.complex32}
FLOAT8 = {getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)}


def _check_layout(given: dict[str, Any]) -> None:
    """Tensors that are sent as they lie in memory; parts of a list of lists are copied together first."""
    for value in given.values():
        if not isinstance(value, (list, tuple)):
            value = [value]
        for tensor in value:
            if isinstance(tensor, torch.Tensor) and not tensor.is_contiguous(memory_format=suggest_memory_format(tensor)):
                raise ValueError("Tensors must be contiguous")


GATHER = "c10d::allgather_"


def _is_uneven(tensors: list[torch.Tensor]) -> bool:
    """Tensors of several sizes, which NCCL's backend sends one by one. Source: `allgather` in `ProcessGroupNCCL.cpp`."""
    if len({tensor.shape for tensor in tensors}) < 2:
        return False
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("Tensors must be contiguous")
    return True


IN_ONE_PIECE = frozenset(
    "c10d::_allgather_base_ c10d::_reduce_scatter_base_ c10d::allgather_into_tensor_coalesced_ "
    "c10d::reduce_scatter_tensor_coalesced_".split()
)
"""Operators that look at a tensor as one row of numbers; gloo divides its first dimension."""


def _flatten(tensor: torch.Tensor) -> torch.Tensor:
    return _view_plain(tensor.as_strided((tensor.numel(),), (1,)))


def _view_plain(tensor: torch.Tensor) -> torch.Tensor:
    """What gloo does not know by its type goes as bytes."""
    if tensor.dtype in FLOAT8:
        return tensor.view(torch.uint8)
    return tensor


def _map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (torch.Tensor, list, tuple)):
        return [_map_tensors(each, change) for each in value]
    return value
