"""Modules entered and left: two global hooks, which also fire in the replicas' threads; room for their frames."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

from devwidget.capture import data_parallel, torch_internals
from devwidget.capture.faults import uncalled
from devwidget.capture.faults.owners import unregistered_tensors
from devwidget.capture.interrupts import Lock, uninterrupted
from devwidget.capture.object_fields import SCALAR_IDS, is_a
from devwidget.capture.patching.global_hooks import MODULE_BEGINS, MODULE_ENDS
from devwidget.capture.recording.event_log import join_devices, read_shape
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.tensors import device_of, tensors_in
from devwidget.capture.undo import Undo

_AT_THE_LEAF = 200
"""Frames that one operator and one fault take below the user's innermost line."""
_lock = Lock()


class _Limit:
    """The limit of the process while recordings run, which may overlap in any order."""

    recordings: tuple[Undo, ...] = ()
    before = ours = 0


def deepen_recursion(undo: Undo) -> None:
    """Raise the limit in proportion: with hooks torch runs a module call in four frames where it takes three without."""
    undo.add_step(_put_back, undo)
    _raise_limit(undo)


@_lock
def _raise_limit(recording: Undo) -> None:
    if not _Limit.recordings:
        before = sys.getrecursionlimit()
        _Limit.before, _Limit.ours = before, before * 4 // 3 + _AT_THE_LEAF
        sys.setrecursionlimit(_Limit.ours)
    _Limit.recordings = (*_Limit.recordings, recording)


@_lock
def _put_back(recording: Undo) -> None:
    _Limit.recordings = tuple(each for each in _Limit.recordings if each is not recording)
    if not _Limit.recordings and sys.getrecursionlimit() == _Limit.ours:  # else the program has set one meanwhile
        sys.setrecursionlimit(_Limit.before)


_now, _Tensor, _DisableTorchFunction = time.perf_counter, torch.Tensor, torch_internals.DisableTorchFunction


def module_hooks(state: RecordingState, undo: Undo) -> None:
    """Follow every module call."""
    watched: dict[int, Undo] = {}
    tracker, log, threads = state.tracker, state.log, state.tracker.threads

    def before(module: nn.Module, args: Any) -> None:
        if state.is_elsewhere():
            return
        here = threads.place
        if not here.stack and here.replica < 0:
            state.ties.look_for_ties(module)
        # Past torch's relays between a call of a module and its hooks, which every search would have to walk through.
        tracker.enter_module(module, sys._getframe(3), _now(), log.number())
        if is_a(module, nn.DataParallel) and id(module) not in watched:
            with uninterrupted():
                watched[id(module)] = Undo()
                data_parallel.watch_call(module, state, watched[id(module)])

    def after(module: nn.Module, args: Any, *rest: Any) -> None:
        if state.is_elsewhere():
            return
        # When forward raises, torch calls an `always_call` hook without the keyword arguments.
        failed = len(rest) == 1
        running = tracker.leave_module(module)
        if watched and id(module) in watched:
            with uninterrupted():
                watched[id(module)].run_steps()
                del watched[id(module)]
        if running is None or running.path is None:
            return
        here = threads.place
        if not here.stack and any(transfer.moved is not None for transfer in state.transfers.kept):
            kept = {id(tensor) for _, _, tensor in unregistered_tensors(state.tracker)}
            state.transfers.forget_kept_copies(lambda tensor: id(tensor) in kept)
        entry = log.module_entry(running.path, running.replica, module, running.number, running.started)
        if not entry.calls:
            entry.stopped = log.number()
        entry.calls += 1
        entry.seconds += _now() - running.started
        with _DisableTorchFunction():  # our looking is no call for modes and tensor classes of the user
            if failed:
                entry.inputs = _with_devices(entry.inputs, args)
            else:
                given = (*args, *rest[0].values()) if rest[0] else args
                entry.inputs = _with_devices(entry.inputs, given)
                entry.outputs = _with_devices(entry.outputs, rest[1])
                if entry.calls == 1:
                    entry.input_shapes, entry.output_shapes = _list_shapes(given), _list_shapes(rest[1])
        if not failed:
            here.failed = None
            return
        if here.failed is None:
            uncalled.look(state, running, args, sys.exception())
        here.failed = running.path if here.failed is None else here.failed
        entry.failed = True

    undo.add_step(_end_unfinished, watched)
    MODULE_BEGINS.call_hook(before, undo)
    MODULE_ENDS.call_hook(after, undo)
    deepen_recursion(undo)


def _end_unfinished(watched: dict[int, Undo]) -> None:
    """Calls of wrappers that never ended."""
    while watched:
        list(watched.values())[-1].run_steps()
        watched.popitem()


def _list_shapes(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(read_shape(tensor) for tensor in tensors_in(value, depth=3))


def _with_devices(known: tuple[torch.device, ...], value: Any) -> tuple[torch.device, ...]:
    for part in value if type(value) is tuple else (value,):
        if type(part) is _Tensor:
            if part.device not in known:
                known = join_devices(known, (part.device,))
        elif id(type(part)) not in SCALAR_IDS:
            known = join_devices(known, (device_of(tensor) for tensor in tensors_in(part, depth=3)))
    return known
