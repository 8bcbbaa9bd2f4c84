"""A move that was named and not called, `clip = waveform.cuda`: the method itself was given to a module."""

from __future__ import annotations

import types
from typing import Any

import torch

from devwidget.capture.modules import own_tensors
from devwidget.capture.object_fields import class_name
from devwidget.capture.recording.call_stack import Running
from devwidget.capture.recording.event_log import bytes_of, device_id, short
from devwidget.capture.recording.state import State
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import to_site
from devwidget.capture.tensors import is_tensor
from devwidget.records.errors import error_text
from devwidget.records.trace import Fault, Operand


def look(state: State, running: Running, args: tuple[Any, ...], error: BaseException | None) -> None:
    """A module has failed: was it given a move of a tensor instead of the tensor?"""
    for argument in args:
        called = type(argument) is types.MethodType or type(argument) is types.BuiltinMethodType
        tensor = argument.__self__ if called else None
        if is_tensor(tensor) and argument.__name__ in statements.MOVES:
            _report(state, running, tensor, argument.__name__, error)


def _report(state: State, running: Running, tensor: torch.Tensor, method: str, error: BaseException | None) -> None:
    site = running.site
    home = next(iter(own_tensors(running.module).values()), tensor).device
    if site is None or not state.log.is_new_fault(("uncalled", site, method)):
        return
    named = statements.named_move(site.code.co_filename, method, 1_000_000_000)
    shape, dtype, device = tuple(tensor.shape), short(tensor.dtype), device_id(tensor.device)
    stray = Operand("input", "", shape, dtype, device, bytes_of(tensor), stray=True, ineffective=named)
    text = error_text(error) if error is not None else ""
    call = class_name(type(running.module))
    state.log.fault(Fault(0, "operands", call, running.path, "forward", to_site(site), text, (stray,), device_id(home)))
