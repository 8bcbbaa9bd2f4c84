"""Moves that give something else than it seems: a copy that gets no gradient, and a method that was not called."""

from __future__ import annotations

import types
from types import FrameType
from typing import Any

import torch

from devwidget.capture.faults import operand_names
from devwidget.capture.object_fields import class_name, is_exactly
from devwidget.capture.recording.event_log import device_id, operand_of
from devwidget.capture.recording.module_tracker import ModuleCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import raw_site
from devwidget.capture.source_code.stack import is_users_code
from devwidget.capture.tensors import is_tensor, node_of, own_tensors
from devwidget.records.errors import error_text


def look_for_gradient(state: RecordingState, tensor: torch.Tensor, frame: FrameType) -> None:
    """Handle a frame that read `.grad` and got None."""
    if tensor.is_leaf or not is_users_code(frame.f_code):
        return
    leaf, site = leaf_behind(tensor), raw_site(frame)
    if leaf is None or leaf.grad is None or not state.log.is_new_fault(("grad", site)):
        return
    names = operand_names.Names(state, frame)
    operand = names.describe_stray(tensor, "grad", names.expression(tensor) or "tensor", tensor.device)
    state.report_fault("leaf", "grad", site, operands=(operand,), model_name=names.model_name())


def leaf_behind(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the leaf that a single move made this tensor from."""
    node = node_of(tensor)
    if node is None or not ("Copy" in node.name() or "Move" in node.name()):
        return None
    before = [previous for previous, _ in node.next_functions if previous is not None]
    if len(before) == 1:
        return getattr(before[0], "variable", None)
    return None


# A move that was not called.


def look_for_uncalled(state: RecordingState, running: ModuleCall, args: tuple[Any, ...], error: BaseException | None) -> None:
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
    state.report_fault(
        "operands",
        class_name(type(running.module)),
        site,
        module=running.path,
        phase="forward",
        error=error_text(error) if error is not None else "",
        operands=(operand_of(tensor, "input", "", stray=True, ineffective=named),),
        target=device_id(home),
    )
