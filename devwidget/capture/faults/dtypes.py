"""Floating types that an operator does not mix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.modules import own_tensors, walk_modules
from devwidget.capture.object_fields import is_exactly
from devwidget.capture.recording.descriptions import operand_of
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.tensors import is_parameter
from devwidget.records.errors import message
from devwidget.records.trace import FaultDetails

_DTYPE_WORDS = re.compile(r"same dtype|scalar type|dtype|Input type .* and (weight|bias) type", re.IGNORECASE)


def handle_failure(call: FailedCall) -> Any:
    """Heal by casting to the dtype of the layer's own parameters, without one to the partners' own."""
    floats = [t for t in call.tensors() if t.is_floating_point()]
    if floats and "without overflow" in message(call.error):
        return _overflown(call, floats[0])
    if len({t.dtype for t in floats}) < 2 or not _DTYPE_WORDS.search(message(call.error)):
        return NOT_OURS
    wanted = _wanted(call, floats)
    strays = [t for t in floats if t.dtype != wanted]
    out = call.again(lambda t: t.to(wanted) if any(t is stray for stray in strays) else t)
    call.report("dtype", strays, floats[0].device, out, FaultDetails(wanted=format_dtype(wanted)))
    return out


def _overflown(call: FailedCall, tensor: torch.Tensor) -> Any:
    """A number that the dtype cannot hold: heal with the nearest that it can."""
    limits = torch.finfo(tensor.dtype)

    def fit(value: Any) -> Any:
        return max(limits.min, min(limits.max, value)) if is_exactly(value, (int, float)) else value

    out = call.again_with(tuple(map(fit, call.args)), {key: fit(value) for key, value in call.kwargs.items()})
    call.report("dtype", [tensor], tensor.device, out, FaultDetails("constant", wanted=format_dtype(tensor.dtype)))
    return out


def _wanted(call: FailedCall, floats: list[torch.Tensor]) -> torch.dtype:
    """That of a parameter that was given, else of the running module's own, else the one of all parameters below it.

    A buffer has a say after them. Where no module has one, the dtype that the program names, else the widest but float64.
    """
    met, module = {t.dtype for t in floats}, call.state.tracker.running
    parts = [part for _, part in walk_modules(module)] if module is not None else []
    own = list(own_tensors(module).values()) if module is not None else []
    below = set(_dtypes(t for part in parts for t in own_tensors(part).values() if is_parameter(t)))
    common = met & {dtype for part in parts for dtype in _dtypes(own_tensors(part).values())}
    agreed = common if len(common) == 1 else _named(call, floats)
    parameters = _dtypes(t for t in (*floats, *own) if is_parameter(t))
    known = [*parameters, *(below if len(below) == 1 else ()), *_dtypes(own), *agreed]
    widest = min(met, key=lambda d: (d == torch.float64, -d.itemsize))
    return next((dtype for dtype in known if dtype in met), widest)


def _named(call: FailedCall, floats: list[torch.Tensor]) -> set[torch.dtype]:
    """The one dtype that a line asks for, by `dtype=` or a cast: the others have theirs because nobody said anything."""
    names = Names(call.state, call.frame)
    made = [(t.dtype, names.with_birth(operand_of(t, "", "", stray=True), t, t.device, of_dtype=True)) for t in floats]
    named = {dtype for dtype, each in made if each.from_move or "dtype=" in each.birth_call} - {torch.float64}
    return named if len(named) == 1 else set()


def _dtypes(tensors: Iterable[torch.Tensor]) -> list[torch.dtype]:
    return [t.dtype for t in tensors if t.is_floating_point()]
