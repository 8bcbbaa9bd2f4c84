"""A `.grad` read from a tensor that a move made: backward stored the gradient on the leaf behind it."""

from __future__ import annotations

from types import FrameType

import torch

from devwidget.capture.faults import operand_names
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import raw_site
from devwidget.capture.source_code.stack import is_users_code
from devwidget.capture.tensors import node_of


def look_for_gradient(state: RecordingState, tensor: torch.Tensor, frame: FrameType) -> None:
    """Handle a frame that read `.grad` and got None."""
    if tensor.is_leaf or not is_users_code(frame.f_code):
        return
    leaf, site = leaf_behind(tensor), raw_site(frame)
    if leaf is None or leaf.grad is None or not state.log.is_new_fault(("grad", site)):
        return
    names = operand_names.Names(state, frame)
    operand = operand_of(tensor, "grad", names.expression(tensor) or "tensor", stray=True)
    operand = names.with_birth(operand, tensor, tensor.device)
    state.log.log_fault(fault_at(state.tracker, "leaf", "grad", site, operands=(operand,), model_name=names.model_name()))


def leaf_behind(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the leaf that a single move made this tensor from."""
    node = node_of(tensor)
    if node is None or not ("Copy" in node.name() or "Move" in node.name()):
        return None
    before = [previous for previous, _ in node.next_functions if previous is not None]
    if len(before) == 1:
        return getattr(before[0], "variable", None)
    return None
