"""Hooks on what forward saves for backward: one that brings a tensor back on another device than it was saved on."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import saved_tensors_hooks

from devwidget.capture import torch_internals
from devwidget.capture.faults import operand_names
from devwidget.capture.object_fields import is_a
from devwidget.capture.patches.custom_gradients import log_backward_fault
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.recording.descriptions import operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.source_code.stack import is_users_function
from devwidget.capture.tensors import is_tensor, read_attribute
from devwidget.capture.undo import Undo


@dataclasses.dataclass(frozen=True, slots=True)
class _Packed:
    """What a hook of the user made of a tensor, with where that was, and the line and module that saved it."""

    value: Any
    device: torch.device
    site: RawSite | None
    module: str | None


def saved_hooks(state: RecordingState, undo: Undo) -> None:
    """Watch the `saved_tensors_hooks` that the user enters."""
    recording = [True]  # a graph may outlive the recording, and its hooks must then be as if we had never been there
    undo.add_step(recording.clear)

    def entering(original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(self: saved_tensors_hooks) -> Any:
            pack, unpack = self.pack_hook, self.unpack_hook
            if state.is_elsewhere() or not is_users_function(unpack):
                return original(self)
            self.pack_hook = functools.partial(_pack, state, pack)
            self.unpack_hook = functools.partial(_unpack, state, recording, unpack)
            try:
                return original(self)
            finally:
                self.pack_hook, self.unpack_hook = pack, unpack

        return enter

    undo.enter_context(make_patch(saved_tensors_hooks, "__enter__", entering))


def _pack(state: RecordingState, hook: Any, tensor: torch.Tensor) -> _Packed:
    site, module, device = raw_site(sys._getframe(1)), state.tracker.module, tensor.device
    return _Packed(hook(tensor), device, site, module)


def _unpack(state: RecordingState, recording: list[bool], hook: Any, packed: _Packed) -> Any:
    """The tensor, which an operator of torch needs where it was; what a `Function` of the user saved is that one's business."""
    result = hook(packed.value)
    node: Any = torch_internals.current_autograd_node()
    if not recording or node is None or is_a(node, BackwardCFunction) or not is_tensor(result):
        return result
    if result.device == packed.device or not read_attribute(result, "ndim"):
        return result
    names = operand_names.Names(state, sys._getframe(1))
    operand = names.with_birth(operand_of(result, "saved tensor", "", stray=True), result, packed.device)
    if state.log.is_new_fault(("operands", packed.site, hook.__code__, packed.module)):
        error = f"RuntimeError: expected a saved tensor on {packed.device} but got {result.device}"
        log_backward_fault(state, names, hook, (packed.site, packed.module), operand, packed.device, error)
    return result.to(packed.device) if state.heal else result
