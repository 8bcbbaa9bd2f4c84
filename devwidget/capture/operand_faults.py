"""Faults of operands: a torch call whose tensors are on devices that it does not mix."""

from __future__ import annotations

import re
from types import FrameType
from typing import Any

import torch

from devwidget.capture import healing, naming
from devwidget.capture.call_site import raw_site, to_site
from devwidget.capture.log import bytes_of, device_id, short
from devwidget.capture.state import State
from devwidget.capture.tensors import tensors_in
from devwidget.records.trace import Fault, Operand

NOT_OURS = object()
"""The answer for an exception that is no device fault, or could not be healed."""

_DEVICE_WORDS = re.compile(
    r"same device|expected (all tensors|device)|on (the )?(cpu|cuda|xpu|mps|meta)\b|device type|weight type|\bCPU\b.*\btensor",
    re.IGNORECASE,
)


def meet(state: State, func: Any, args: Any, kwargs: Any, error: Exception, frame: FrameType) -> Any:
    """Write down the fault behind an exception, and heal it if this recording heals.

    Returns:
        The result of the healed call, or NOT_OURS if the exception must go on its way.
    """
    tensors = list(tensors_in((args, kwargs)))
    name = getattr(func, "__name__", "")
    target = healing.target_device(name, tensors, state.places.running, state.births)
    if target is None or not (state.heal or _DEVICE_WORDS.search(str(error))):
        return NOT_OURS
    moved = healing.strays(tensors, target)
    out = _again(state, func, args, kwargs, moved, target) if state.heal else NOT_OURS
    if out is NOT_OURS and not _DEVICE_WORDS.search(str(error)):
        return NOT_OURS
    state.log.fault(_fault(state, func, args, kwargs, error, frame, moved, target, healed=out is not NOT_OURS))
    return out


def _again(state: State, func: Any, args: Any, kwargs: Any, moved: list[torch.Tensor], target: torch.device) -> Any:
    with state.places.because("healed"):
        try:
            return healing.call_with_moved(func, args, kwargs, moved, target)
        except Exception:  # the placement was not all that was wrong: the caller raises the first error
            return NOT_OURS


def _fault(
    state: State,
    func: Any,
    args: Any,
    kwargs: Any,
    error: Exception,
    frame: FrameType,
    moved: list[torch.Tensor],
    target: torch.device,
    *,
    healed: bool,
) -> Fault:
    names = naming.Names(state, frame)
    operands = []
    for argument, tensor in naming.arguments(func, args, kwargs):
        stray = any(tensor is other for other in moved)
        operands.append(_operand(names, argument, tensor, target, stray=stray))
    return Fault(
        number=0,
        what="operands",
        call=getattr(func, "__name__", str(func)),
        module=state.places.module,
        phase=state.places.phase,
        site=to_site(raw_site(frame)),
        error=f"{type(error).__name__}: {error}",
        operands=tuple(operands),
        target=device_id(target),
        healed=healed,
        model_name=names.model_name(),
    )


def _operand(names: naming.Names, argument: str, tensor: torch.Tensor, target: torch.device, *, stray: bool) -> Operand:
    facts = Operand(argument, names.expression(tensor), tuple(tensor.shape), short(tensor.dtype), device_id(tensor.device),
                    bytes_of(tensor), stray)  # fmt: skip
    return names.with_birth(facts, tensor, target) if stray else facts
