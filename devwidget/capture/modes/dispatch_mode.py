"""Ops: a dispatch mode that logs every operator below autograd and each crossing between devices."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patches.higher_order import take_apart
from devwidget.capture.patching.mode_stack import DispatchMode
from devwidget.capture.recording.event_log import alone, joined
from devwidget.capture.recording.state import State
from devwidget.capture.source_code.call_sites import is_hooked
from devwidget.capture.tensors import tensors_in

_PARALLEL_CAUSES = ("scatter", "replicate", "gather", "reduce")
_MOVES = ("_to_copy", "copy_")
_HIGHER_ORDER = "higher-order operator"
_APART = (*_MOVES, _HIGHER_ORDER)
_names: dict[int, tuple[Any, str]] = {}
"""Operators by id, and their names; keeping the operator keeps its id. Its hash would be a call of Python code."""


def _name(func: Any) -> str:
    name = func._schema.name.removeprefix("aten::") if isinstance(func, torch_internals.OpOverload) else _HIGHER_ORDER
    return _names.setdefault(id(func), (func, name))[1]


def _devices(args: tuple[Any, ...]) -> tuple[torch.device, ...]:
    """Devices of the tensors, each once, lists opened one level."""
    first: torch.device | None = None
    for arg in args:
        if isinstance(arg, torch.Tensor):
            device = arg.device
            if first is None:
                first = device
            elif device != first:
                return _all_devices(args)
        elif type(arg) is list and arg and not isinstance(arg[0], int):  # sizes and strides are the most common lists
            return _all_devices(args)
    return () if first is None else alone(first)


def _all_devices(args: tuple[Any, ...]) -> tuple[torch.device, ...]:
    return joined((), (tensor.device for tensor in tensors_in(args, depth=2)))


class Ops(DispatchMode):
    """Logs operators; one instance for each thread."""

    supports_higher_order_operators = True

    def __init__(self, state: State) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._state = state
        self._tracker = state.tracker
        self._here = state.tracker.here
        self._log_op = state.log.op

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator, then write down where it ran."""
        known = _names.get(id(func))
        name = known[1] if known is not None else _name(func)
        if name in _APART:
            return self._moved(func, name, args, kwargs) if name in _MOVES else take_apart(self, func, args, kwargs)
        out = func(*args, **kwargs) if kwargs else func(*args)
        self._log(name, args, out)
        return out

    def _log(self, name: str, args: tuple[Any, ...], out: Any) -> None:
        here, tracker = self._here, self._tracker
        site = here.site or tracker.site(sys._getframe(2))
        phase = tracker.forced or ("forward" if here.stack else tracker.phase)
        if type(out) in (list, tuple) and out:
            out = out[0]
        target = out.device if isinstance(out, torch.Tensor) else None
        self._log_op(name, here.path, phase, site, _devices(args), target)

    def _moved(self, func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
        started = time.perf_counter()
        out = func(*args, **(kwargs or {}))
        self._log(name, args, out)
        tracker, cause = self._tracker, self._here.cause
        before = args[1] if name == "copy_" else args[0]
        if isinstance(before, torch.Tensor) and before.device != out.device and cause not in _PARALLEL_CAUSES:
            seconds, site = time.perf_counter() - started, self._here.site or tracker.site(sys._getframe(1))
            if cause == "explicit" and is_hooked(sys._getframe(1)):
                cause = "hook"
            self._state.log.move(before.device, out.device, (out,), tracker.module, tracker.phase, site, cause, seconds)
        checks = self._state.copy_checks
        if checks is not None and isinstance(before, torch.Tensor) and before.device != out.device:
            checks.compare(before, out, self._here.site or tracker.site(sys._getframe(1)))
        return out
