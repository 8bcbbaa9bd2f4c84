"""Floating-point dtypes that an operator does not mix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.modules import own_parameters, walk_modules
from devwidget.capture.object_fields import is_a, is_exactly
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.tensors import is_parameter, is_tensor
from devwidget.records.errors import message
from devwidget.records.fault_details import WrongDtype

_DTYPE_WORDS = re.compile(r"same dtype|scalar type|dtype|Input type .* and (weight|bias) type", re.IGNORECASE)


def handle_failure(call: FailedCall) -> Any:
    """Repair by casting to the dtype of the layer's parameters, else to the dtype of the other operands."""
    floats = [tensor for tensor in call.tensors() if tensor.is_floating_point()]
    if floats and "without overflow" in message(call.error):
        return _overflown(call, floats[0])
    if len(set(_dtypes(floats))) < 2 or not _DTYPE_WORDS.search(message(call.error)):
        return NOT_OURS
    wanted = _wanted(call, floats)
    strays = [tensor for tensor in floats if tensor.dtype != wanted]
    out = call.again_changing(strays, lambda tensor: tensor.to(wanted))
    call.report("dtype", strays, floats[0].device, out, WrongDtype(format_dtype(wanted)))
    return out


def _overflown(call: FailedCall, tensor: torch.Tensor) -> Any:
    """Repair a number that the dtype cannot hold with the nearest one that it can."""
    limits = torch.finfo(tensor.dtype)

    def fit(value: Any) -> Any:
        if is_exactly(value, (int, float)):
            return max(limits.min, min(limits.max, value))
        return value

    out = call.again(fit)
    call.report("dtype", [tensor], tensor.device, out, WrongDtype(format_dtype(tensor.dtype), is_constant=True))
    return out


def _wanted(call: FailedCall, floats: list[torch.Tensor]) -> torch.dtype:
    """Return the dtype of a parameter operand, of the running module or of all its submodules; else the widest except
    float64."""
    met = {tensor.dtype for tensor in floats}
    for dtype in _dtypes_asked_for(call, floats):
        if dtype in met:
            return dtype
    return min(met, key=lambda dtype: (dtype == torch.float64, -dtype.itemsize))


def _dtypes_asked_for(call: FailedCall, floats: list[torch.Tensor]) -> Iterator[torch.dtype]:
    """Yield the dtypes of incoming gradients, then of parameters."""
    incoming = set(_dtypes(_incoming_gradients(call.frame)))
    if len(incoming) == 1:
        yield from incoming
    yield from _dtypes(filter(is_parameter, floats))
    module = call.state.tracker.running
    if module is not None:
        yield from _dtypes(own_parameters(module).values())
        below = {dtype for _, part in walk_modules(module) for dtype in _dtypes(own_parameters(part).values())}
        if len(below) == 1:
            yield from below


def _incoming_gradients(frame: FrameType | None) -> list[torch.Tensor]:
    """Return the arguments of a hand-written `backward`. Its gradients have the dtype of the outputs, whatever `forward`
    saved.
    """
    if frame is None:
        return []
    arguments = list(locals_of(frame).values())[: frame.f_code.co_argcount]
    if not arguments or not is_a(arguments[0], torch.autograd.function.BackwardCFunction):
        return []
    return [each for each in arguments[1:] if is_tensor(each)]


def _dtypes(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    return [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
