"""Record when modules are entered and left, with two global hooks that also run in replica threads."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.faults import moves
from devwidget.capture.faults.owners import unregistered_tensors
from devwidget.capture.object_fields import SCALAR_IDS
from devwidget.capture.patching.global_hooks import MODULE_BEGINS, MODULE_ENDS
from devwidget.capture.recording.event_log import ModuleEntry, join_devices, read_shape
from devwidget.capture.recording.module_tracker import ModuleCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.tensors import device_of, tensors_in
from devwidget.capture.undo import Undo

_now, _Tensor, _DisableTorchFunction = time.perf_counter, torch.Tensor, torch_internals.DisableTorchFunction


def module_hooks(state: RecordingState, undo: Undo) -> None:
    """Follow every module call."""
    hooks = _ModuleHooks(state)
    state.call_hook(MODULE_BEGINS, hooks.module_begins, undo)
    state.call_hook(MODULE_ENDS, hooks.module_ends, undo)


class _ModuleHooks:
    """Hooks that report modules to a recording."""

    def __init__(self, state: RecordingState) -> None:
        self._state, self._tracker, self._log = state, state.tracker, state.log

    def module_begins(self, module: nn.Module, args: Any) -> None:
        here = self._tracker.here
        if not here.stack and here.replica < 0:
            self._state.ties.look_for_ties(module)
        # Past torch's relays between a call of a module and its hooks, which every search would have to walk through.
        self._tracker.enter_module(module, sys._getframe(4), _now(), self._log.number())

    def module_ends(self, module: nn.Module, args: Any, *rest: Any) -> None:
        running = self._tracker.leave_module(module)
        if running is None or running.path is None:
            return
        if not self._tracker.here.stack:
            self._forget_kept_copies()
        entry = self._log.module_entry(running.path, running.replica, module, running.number, running.started)
        if not entry.calls:
            entry.stopped = self._log.number()
        entry.calls += 1
        entry.seconds += _now() - running.started
        with _DisableTorchFunction():  # our reads must not call the user's modes and tensor classes
            if len(rest) == 1:  # when forward raises, torch calls an `always_call` hook without the keyword arguments
                self._note_failure(entry, running, args)
            else:
                self._note_result(entry, (*args, *rest[0].values()), rest[1])

    def _note_result(self, entry: ModuleEntry, given: tuple[Any, ...], out: Any) -> None:
        self._tracker.here.failed = None
        entry.inputs = _with_devices(entry.inputs, given)
        entry.outputs = _with_devices(entry.outputs, out)
        if entry.calls == 1:
            entry.input_shapes, entry.output_shapes = _list_shapes(given), _list_shapes(out)

    def _note_failure(self, entry: ModuleEntry, running: ModuleCall, args: Any) -> None:
        here = self._tracker.here
        entry.inputs = _with_devices(entry.inputs, args)
        entry.failed = True
        if here.failed is None:
            moves.look_for_uncalled(self._state, running, args, sys.exception())
            here.failed = running.path

    def _forget_kept_copies(self) -> None:
        """Drop copies that modules keep, after the outermost module has returned: they will not be copied again."""
        transfers = self._state.transfers
        if any(transfer.moved is not None for transfer in transfers.kept):
            kept = {id(owned.tensor) for owned in unregistered_tensors(self._tracker)}
            transfers.forget_kept_copies(lambda tensor: id(tensor) in kept)


def _list_shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(read_shape(tensor) for tensor in tensors_in(value, depth=3))


def _with_devices(known: tuple[torch.device, ...], value: Any) -> tuple[torch.device, ...]:
    if type(value) is not tuple:
        value = (value,)
    for part in value:
        if type(part) is _Tensor:
            if part.device not in known:
                known = join_devices(known, (part.device,))
        elif id(type(part)) not in SCALAR_IDS:
            known = join_devices(known, (device_of(tensor) for tensor in tensors_in(part, depth=3)))
    return known
