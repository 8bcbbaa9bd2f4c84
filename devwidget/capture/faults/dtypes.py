"""Floating types that an operator does not mix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.modules import own_tensors, walk_modules
from devwidget.capture.object_fields import is_a, is_among, is_exactly
from devwidget.capture.recording.descriptions import operand_of
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.tensors import is_parameter, is_tensor
from devwidget.records.errors import message
from devwidget.records.trace import FaultDetails

_DTYPE_WORDS = re.compile(r"same dtype|scalar type|dtype|Input type .* and (weight|bias) type", re.IGNORECASE)


def handle_failure(call: FailedCall) -> Any:
    """Heal by casting to the dtype of the layer's own parameters, without one to the partners' own."""
    floats = [tensor for tensor in call.tensors() if tensor.is_floating_point()]
    if floats and "without overflow" in message(call.error):
        return _overflown(call, floats[0])
    if len(set(_dtypes(floats))) < 2 or not _DTYPE_WORDS.search(message(call.error)):
        return NOT_OURS
    wanted = _wanted(call, floats)
    strays = [tensor for tensor in floats if tensor.dtype != wanted]
    out = call.again(lambda t: t.to(wanted) if is_among(t, strays) else t)
    call.report("dtype", strays, floats[0].device, out, FaultDetails(wanted=format_dtype(wanted)))
    return out


def _overflown(call: FailedCall, tensor: torch.Tensor) -> Any:
    """A number that the dtype cannot hold: heal with the nearest that it can."""
    limits = torch.finfo(tensor.dtype)

    def fit(value: Any) -> Any:
        if is_exactly(value, (int, float)):
            return max(limits.min, min(limits.max, value))
        return value

    out = call.again_with(tuple(map(fit, call.args)), {key: fit(value) for key, value in call.kwargs.items()})
    call.report("dtype", [tensor], tensor.device, out, FaultDetails("constant", wanted=format_dtype(tensor.dtype)))
    return out


def _wanted(call: FailedCall, floats: list[torch.Tensor]) -> torch.dtype:
    """That of a parameter that was given, else of the running module's own, else the one of all parameters below it.

    A buffer has a say after them. Where no module has one, the dtype that the program names, else the widest but float64.
    """
    met = {tensor.dtype for tensor in floats}
    widest = min(met, key=lambda dtype: (dtype == torch.float64, -dtype.itemsize))
    return next((dtype for dtype in _dtypes_asked_for(call, floats) if dtype in met), widest)


def _dtypes_asked_for(call: FailedCall, floats: list[torch.Tensor]) -> Iterator[torch.dtype]:
    """What an incoming gradient, parameters, the running module and the lines of the program say, in this order."""
    yield from _only(_dtypes(_incoming_gradients(call.frame)))
    module = call.state.tracker.running
    own, below = _tensors_of(module)
    yield from _dtypes(tensor for tensor in (*floats, *own) if is_parameter(tensor))
    yield from _only(_dtypes(tensor for tensor in below if is_parameter(tensor)))
    yield from _dtypes(own)
    yield from _only(dtype for dtype in _dtypes(below) if any(dtype == tensor.dtype for tensor in floats))
    yield from _dtypes_named(call, floats)


def _incoming_gradients(frame: FrameType | None) -> list[torch.Tensor]:
    """What a hand-written `backward` was given: its gradients have the dtype of the outputs, whatever `forward` has saved."""
    arguments = list(locals_of(frame).values())[: frame.f_code.co_argcount] if frame is not None else []
    if not arguments or not is_a(arguments[0], torch.autograd.function.BackwardCFunction):
        return []
    return [each for each in arguments[1:] if is_tensor(each)]


def _tensors_of(module: nn.Module | None) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """A module's own tensors, and those of all its parts."""
    if module is None:
        return [], []
    return list(own_tensors(module).values()), [each for _, part in walk_modules(module) for each in own_tensors(part).values()]


def _dtypes_named(call: FailedCall, floats: list[torch.Tensor]) -> list[torch.dtype]:
    """The one dtype that a line asks for, by `dtype=` or a cast: the others have theirs because nobody said anything."""
    names, named = Names(call.state, call.frame), []
    for tensor in floats:
        operand = names.with_birth(operand_of(tensor, "", "", stray=True), tensor, tensor.device, of_dtype=True)
        if operand.from_move or "dtype=" in operand.birth_call:
            named.append(tensor.dtype)
    return _only(dtype for dtype in named if dtype != torch.float64)


def _only(dtypes: Iterable[torch.dtype]) -> list[torch.dtype]:
    """The dtype, if all are one."""
    found = set(dtypes)
    if len(found) == 1:
        return list(found)
    return []


def _dtypes(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    return [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
