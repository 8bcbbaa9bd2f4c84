"""Floating-point dtypes that an operator does not mix."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch

from devwidget.capture.faults import operand_names
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.modules import is_module, own_parameters, walk_modules
from devwidget.capture.object_fields import is_a, is_exactly
from devwidget.capture.precision.autocast_regions import region_around, region_before, region_of_line
from devwidget.capture.precision.indices import is_about_indices
from devwidget.capture.precision.kernels import LOW
from devwidget.capture.recording.descriptions import operand_of
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.stack import user_frames
from devwidget.capture.tensors import is_parameter, tensors_in
from devwidget.records.errors import message
from devwidget.records.fault_details import AutocastRegion, WrongDtype
from devwidget.records.syntax import is_inplace

_DTYPE_WORDS = re.compile(r"same dtype|scalar type|dtype|Input type .* and (weight|bias) type", re.IGNORECASE)
_INTEGER_WORDS = re.compile(
    r"Input type .* and (weight|bias) type|result type \w+ can't be cast|not implemented for '(Long|Int|Short|Byte|Char|Bool)'"
    r"|same dtype|scalar type"
)


def handle_failure(call: FailedCall) -> Any:
    """Repair by casting to the dtype of the layer's parameters, else to the dtype of the other operands."""
    floats = [tensor for tensor in call.tensors() if tensor.is_floating_point()]
    if floats and "without overflow" in message(call.error):
        return _overflown(call, floats[0])
    floats += _weights_called(call)
    integer = _find_integer(call, floats)
    if integer is not None:
        wanted, strays = floats[0].dtype, [integer]
    elif len(set(_dtypes(floats))) > 1 and is_about_dtypes(message(call.error)):
        wanted = _wanted(call, floats)
        strays = [tensor for tensor in floats if tensor.dtype != wanted]
    else:
        return NOT_OURS
    out = call.again_changing(strays, lambda tensor: tensor.to(wanted))
    target = floats[0].device
    backward = _hand_written_backward(call.frame)
    detail = WrongDtype(
        format_dtype(wanted),
        autocast=_find_region(call, floats, backward),
        backward=statements.definition_site(backward) if backward is not None else None,
    )
    call.report("dtype", strays, target, out, detail)
    return out


def _weights_called(call: FailedCall) -> list[torch.Tensor]:
    """Return the parameters of a layer that is the function of the call: a recurrent layer checks its input itself."""
    if is_module(call.func):
        return list(own_parameters(call.func).values())
    return []


def _find_integer(call: FailedCall, floats: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the one operand of integers or bools among floats of one dtype, where the message is about that."""
    if len(set(_dtypes(floats))) != 1 or is_inplace(call.name) or not _INTEGER_WORDS.search(message(call.error)):
        return None
    others = [tensor for tensor in call.tensors() if not tensor.is_floating_point() and not tensor.is_complex()]
    return others[0] if len(others) == 1 else None


def is_about_dtypes(text: str) -> bool:
    """Return whether the message of an exception is about dtypes that differ."""
    return _DTYPE_WORDS.search(text) is not None and not is_about_indices(text)


def _find_region(call: FailedCall, floats: list[torch.Tensor], backward: FrameType | None) -> AutocastRegion | None:
    """Return the autocast region that made an operand low precision, or one around the call that is for another device."""
    frames = list(user_frames(call.frame))
    around = region_around(frames)
    if around is not None and around.device not in ("", floats[0].device.type):
        return around
    low = next((tensor for tensor in floats if tensor.dtype in LOW and not is_parameter(tensor)), None)
    if low is None:
        return None
    if backward is not None:
        return region_before(frames)
    names = operand_names.Names(call.state, call.frame)
    operand = names.with_birth(operand_of(low, "", ""), low, low.device, of_dtype=True)
    if operand.birth is None or _is_cast(operand.birth.text):
        return None
    return region_of_line(frames, operand.birth)


def _is_cast(text: str) -> bool:
    return any(word in text for word in ("half", "float16", "dtype"))


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
    """Return the gradients that a hand-written `backward` got. They have the dtype of the outputs, whatever `forward` saved."""
    found = _hand_written_backward(frame)
    if found is None:
        return []
    code, variables = found.f_code, locals_of(found)
    names = code.co_varnames[1 : code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS)]
    return list(tensors_in([variables.get(name) for name in names]))


def _hand_written_backward(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the user's `backward` that runs, whose first argument is the context."""
    for each in user_frames(frame):
        arguments = list(locals_of(each).values())[: each.f_code.co_argcount]
        if arguments and is_a(arguments[0], torch.autograd.function.BackwardCFunction):
            return each
    return None


def _dtypes(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    return [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
