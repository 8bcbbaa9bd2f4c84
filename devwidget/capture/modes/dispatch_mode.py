"""Ops: a dispatch mode that logs every operator below autograd and each crossing between devices."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.capture.recording.collectives.kinds import KINDS
from devwidget.capture.recording.event_log import Devices, joined
from devwidget.capture.recording.state import State
from devwidget.capture.source_code.call_sites import is_hooked
from devwidget.capture.tensors import tensors_in
from devwidget.records.trace import Phase

_PARALLEL_CAUSES = ("scatter", "replicate", "gather", "reduce")
_MOVES = ("_to_copy", "copy_")
_APART = frozenset({*_MOVES, *KINDS})
_names: dict[int, tuple[str, bool, Any]] = {}
"""Operators by id: their names, whether they take a path of their own, and the operator itself, which keeps its id. Its hash
would be a call of Python code."""


def _named(func: Any) -> tuple[str, bool, Any]:
    name = func._schema.name.removeprefix("aten::")
    return _names.setdefault(id(func), (name, name in _APART, func))


_Tensor, _Parameter, _DisableTorchFunction = torch.Tensor, nn.Parameter, torch_internals.DisableTorchFunction


def _devices(args: tuple[Any, ...]) -> Devices:
    """Devices of the tensors, each once, lists opened one level; of a single one, as nearly always, the device itself."""
    first: torch.device | None = None
    for arg in args:
        kind = type(arg)
        if kind is _Tensor or kind is _Parameter:
            if first is None:
                first = arg.device
            elif arg.device != first:
                return _all_devices(args)
        elif kind is list:
            if arg and type(arg[0]) is not int:  # sizes and strides are the most common lists
                return _all_devices(args)
        elif kind is not int and issubclass(kind, _Tensor):
            return _all_devices(args)
    return first


def _all_devices(args: tuple[Any, ...]) -> Devices:
    found = joined((), (tensor.device for tensor in tensors_in(args, depth=2)))
    return found if len(found) > 1 else found[0] if found else None


class Ops(DispatchMode):
    """Logs operators; one instance for each thread."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tracker = state.tracker
        self._threads = state.tracker.threads
        self._note_line = state.tracker.forward_lines.note
        self._ops, self._counts, self._first = state.log.ops_met, state.log.op_counts, state.log.first_op

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator, then write down where it ran."""
        name, is_apart, _ = _names.get(id(func)) or _named(func)
        if is_apart:
            return self._apart(func, name, args, kwargs)
        out = redispatch(func, args, kwargs)
        self._log(name, args, out)
        return out

    def _log(self, name: str, args: tuple[Any, ...], out: Any) -> None:
        here, tracker = self._threads.place, self._tracker
        if type(out) is not _Tensor and not isinstance(out, _Tensor):
            out = out[0] if (type(out) is tuple or type(out) is list) and out else None
        phase: Phase = tracker.forced or ("forward" if here.stack else tracker.phase)
        site = here.site or tracker.site(sys._getframe(2))
        if phase != "backward":
            self._note_line(site)
        with _DisableTorchFunction():  # function modes are active here while autograd runs: our looking is no call for them
            key = name, here.path, phase, id(site), _devices(args), out.device if isinstance(out, _Tensor) else None
        place = self._ops.get(key)
        self._counts[self._first(key, site) if place is None else place] += 1

    def _apart(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in _MOVES:
            return self._moved(func, name, args, kwargs)
        self._state.collectives.begin(func, name, args, sys._getframe(1).f_back)
        out = redispatch(func, args, kwargs)
        self._log(name, args, out)
        return out

    def _moved(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        started = time.perf_counter()
        out = redispatch(func, args, kwargs)
        self._log(name, args, out)
        tracker, cause = self._tracker, self._threads.place.cause
        before = args[1] if name == "copy_" else args[0]
        if isinstance(before, torch.Tensor) and before.device != out.device and cause not in _PARALLEL_CAUSES:
            seconds, site = time.perf_counter() - started, self._threads.place.site or tracker.site(sys._getframe(1))
            if cause == "explicit" and is_hooked(sys._getframe(1)):
                cause = "hook"
            self._state.log.move(before.device, out.device, (out,), tracker.module, tracker.phase, site, cause, seconds)
        checks = self._state.copy_checks
        if checks is not None and isinstance(before, torch.Tensor) and before.device != out.device:
            checks.compare(before, out, self._threads.place.site or tracker.site(sys._getframe(1)))
        return out
