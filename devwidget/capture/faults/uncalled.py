"""A move that was not called, `clip = waveform.cuda`: a module got the method itself."""

from __future__ import annotations

import types
from typing import Any

import torch

from devwidget.capture.modules import own_tensors
from devwidget.capture.object_fields import class_name, is_exactly
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.module_tracker import ModuleCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import statements
from devwidget.capture.tensors import is_tensor
from devwidget.records.errors import error_text


def look(state: RecordingState, running: ModuleCall, args: tuple[Any, ...], error: BaseException | None) -> None:
    """Check whether a failed module got the move method of a tensor instead of the tensor."""
    for argument in args:
        is_method = is_exactly(argument, (types.MethodType, types.BuiltinMethodType))
        if is_method and is_tensor(argument.__self__) and argument.__name__ in statements.MOVES:
            _report(state, running, argument.__self__, argument.__name__, error)


def _report(state: RecordingState, running: ModuleCall, tensor: torch.Tensor, method: str, error: BaseException | None) -> None:
    site = running.site
    if site is None:
        return
    home = next(iter(own_tensors(running.module).values()), tensor).device
    named = statements.named_move(site.code.co_filename, method)
    if named is None or not state.log.is_new_fault(("uncalled", site, method)):
        return
    fault = fault_at(
        state.tracker,
        "operands",
        class_name(type(running.module)),
        site,
        module=running.path,
        phase="forward",
        error=error_text(error) if error is not None else "",
        operands=(operand_of(tensor, "input", "", stray=True, ineffective=named),),
        target=device_id(home),
    )
    state.log.log_fault(fault)
