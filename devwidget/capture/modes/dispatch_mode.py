"""A dispatch mode that logs every operator below autograd and each transfer between devices."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.patching.mode_stack import DispatchMode, has_mode_of, redispatch
from devwidget.capture.patching.operator_key import key_threads
from devwidget.capture.recording.event_log import Devices, join_devices
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.stack import is_hooked
from devwidget.capture.tensors import tensors_in
from devwidget.records.trace import Phase

_PARALLEL_CAUSES = ("scatter", "replicate", "gather", "reduce")
_COPIES = ("_to_copy", "copy_")
_MASKED = frozenset({"index", "index_put_", "index_put", "_index_put_impl_"})
_WAITING = frozenset({
    "_local_scalar_dense", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive",
    "unique_dim_consecutive", "equal", "bincount", "multinomial", "_linalg_check_errors",
})  # fmt: skip
"""Operators that pass a value to the host, or whose output sizes depend on values."""
_WAITING_SOMETIMES = _MASKED | _WAITING | {"repeat_interleave"}
_APART = frozenset(_COPIES) | _WAITING_SOMETIMES
_WORDS = {
    "_local_scalar_dense": "item",
    "_unique": "unique",
    "_unique2": "unique",
    "_index_put_impl_": "index_put_",
    "_to_copy": "to",
}
_names: dict[int, tuple[str, bool, Any]] = {}
"""Operators by id: their names, whether they take their own path, and the operator itself, which keeps its id. Its hash would
be a call of Python code.
"""


def _operator_name(func: Any) -> tuple[str, bool, Any]:
    name = func._schema.name.removeprefix("aten::")
    return _names.setdefault(id(func), (name, name in _APART or "::" in name, func))  # other libraries may run code of the user


_Tensor, _Parameter, _DisableTorchFunction = torch.Tensor, nn.Parameter, torch_internals.DisableTorchFunction
_next_number: Any = torch_internals.find_optional("next_autograd_number")
"""None if this torch lacks it; recording is then refused."""


def _find_devices(args: tuple[Any, ...]) -> Devices:
    """Return the devices of the tensors, each once, lists opened one level. A single one, which is usual, is returned
    itself."""
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
    found = join_devices((), (tensor.device for tensor in tensors_in(args, depth=2)))
    if len(found) > 1:
        return found
    return next(iter(found), None)


def _first_tensor(out: Any) -> torch.Tensor | None:
    if (type(out) is tuple or type(out) is list) and out:
        out = out[0]
    if isinstance(out, _Tensor):
        return out
    return None


def _find_awaited_device(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """Return the accelerator that the operator syncs with, if any."""
    if not args or not isinstance(args[0], torch.Tensor) or not is_accelerator(args[0].device):
        return None
    if name == "repeat_interleave" and kwargs.get("output_size") is not None:
        return None
    if name in _MASKED and not _has_mask(args):
        return None
    return args[0].device


def _has_mask(args: tuple[Any, ...]) -> bool:
    """Return whether a mask selects elements, whose number the host must know. Writing one number through a mask needs no
    sync.
    """
    tensors = [each for each in args[1] if isinstance(each, torch.Tensor)]
    masks = [each for each in tensors if each.dtype in (torch.bool, torch.uint8)]
    value = args[2] if len(args) > 2 else None
    one = isinstance(value, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu"
    return bool(masks) and not (one and len(masks) == 1 and not any(args[3:4]))


def _is_later(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False))


_now = time.perf_counter


class OperatorMode(DispatchMode):
    """Logs operators. One instance per thread."""

    def __init__(self, state: RecordingState) -> None:
        self._state = state
        self._tracker = state.tracker
        self._threads = state.tracker.threads
        self._ops, self._op_entry = state.log.ops, state.log.op_entry

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, is_apart, _ = _names.get(id(func)) or _operator_name(func)
        if is_apart:
            return self._run_apart(func, name, args, kwargs)
        return self._run_logged(func, name, args, kwargs)

    def _run_logged(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_foreign: bool = False) -> Any:
        here, tracker, below = self._threads.place, self._tracker, key_threads.place
        # A function mode above has found the line already, unless autograd runs: then the frames tell, past our own three.
        site = here.site or tracker.find_site(sys._getframe(3))
        here.operator_site = None if is_foreign else site  # what it allocates needs no walk of its own
        asked = below.asked = [args, None]
        try:
            out = redispatch(func, args, kwargs)
        finally:
            here.operator_site = below.asked = None
        first = out if type(out) is _Tensor else _first_tensor(out)
        phase: Phase = tracker.forced or ("forward" if here.stack else tracker.phase)
        if phase != "backward":
            number = _next_number()
            if number != here.next_node:  # else no node was made for it
                here.next_node = number
                here.nodes.note_node(number, site, here.path)
        inputs = output = asked[1]  # virtual GPUs have found it already
        if inputs is None:
            with _DisableTorchFunction():  # function modes are active while autograd runs, and must not see our reads
                inputs = _find_devices(args)
                output = first.device if first is not None else None
        elif first is None:
            output = None
        key = name, here.path, phase, id(site), inputs, output
        entry = self._ops.get(key)
        if entry is None:
            entry = self._op_entry(key, site, first)
        before, here.last_operator = here.last_operator, _now()
        entry.count += 1
        entry.seconds += here.last_operator - before
        return out

    def _run_apart(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in _COPIES:
            return self._run_copy(func, name, args, kwargs)
        if name in _WAITING_SOMETIMES:
            return self._run_waiting(func, name, args, kwargs)
        for observer in self._state.observers:
            try:
                observer.operator_begins(func, name, args, sys._getframe(1))
            except Exception as error:  # a bug of devwidget must not reach the user's program
                self._state.log.log_trouble(error)
        return self._run_logged(func, name, args, kwargs, is_foreign=True)

    def _run_waiting(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = self._run_logged(func, name, args, kwargs)
        with _DisableTorchFunction():
            device = _find_awaited_device(name, args, kwargs)
        if device is not None:
            self._note_wait(name, device, sys._getframe(2))
        return out

    def _note_wait(self, name: str, device: torch.device, frame: FrameType | None) -> None:
        """Note a sync. A call of the program counts its syncs; outside of calls, as in backward, each operator counts."""
        state, here = self._state, self._threads.place
        if here.cause == "healed":
            return
        state.transfers.note_synchronized()
        # Whether the function mode of the recording would see a call that begins now.
        is_active = has_mode_of(state, torch_internals.function_modes())
        if here.site is not None or (self._tracker.forced != "backward" and not is_active):
            state.waits.note_wait(device, copies=name in _COPIES)
        else:
            state.waits.add_wait(_WORDS.get(name, name), device, frame)

    def _run_copy(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        started = time.perf_counter()
        out = self._run_logged(func, name, args, kwargs)
        tracker, cause = self._tracker, self._threads.place.cause
        before = args[1] if name == "copy_" else args[0]
        if not isinstance(before, torch.Tensor) or before.device == out.device:
            return out
        seconds, site = time.perf_counter() - started, self._threads.place.site or tracker.find_site(sys._getframe(1))
        # A copy to meta drops the bytes, as hooks of accelerate do with weights.
        if out.device.type != "meta" and cause not in _PARALLEL_CAUSES:
            if cause == "explicit" and is_hooked(sys._getframe(1)):
                cause = "hook"
            self._state.log.log_transfer(before.device, out.device, (out,), tracker.module, tracker.phase, site, cause, seconds)
            if out.device.type == "cpu" and is_accelerator(before.device) and not _is_later(name, args, kwargs):
                self._note_wait(name, before.device, sys._getframe(2))
        return out
