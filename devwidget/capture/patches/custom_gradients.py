"""Hand-written gradients: a backward or a hook that returns a gradient on another device than its input."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.faults import operand_names
from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.object_fields import is_a, names_of, parts_of
from devwidget.capture.patching.mode_stack import dispatch_modes
from devwidget.capture.patching.registry import PatchedFunction, make_patch
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.source_code.stack import is_users_function
from devwidget.capture.tensors import device_of, is_tensor, read_attribute
from devwidget.capture.undo import Undo
from devwidget.records.trace import Operand

KEY, OVER = "devwidget", "devwidget_is_over"
Calls = Callable[[], contextlib.AbstractContextManager[object]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Forward:
    """What a node of autograd's graph remembers of the call that made it."""

    site: RawSite | None
    module: str | None
    devices: tuple[torch.device | None, ...]


def watch_gradients(state: RecordingState, calls: Calls, undo: Undo) -> None:
    """Watch `torch.autograd.Function`s of the user.

    Args:
        state: of the recording.
        calls: makes the function mode, which is not active in a backward that `Tensor.backward` started.
    """
    watched: dict[int, type] = {}

    def wrap_apply(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
            if state.is_elsewhere():
                return original(cls, *args, **kwargs)
            if id(cls) not in watched and _is_users(names_of(cls).get("backward")):
                watched[id(cls)] = cls
                with uninterrupted():
                    undo.enter_context(make_patch(cls, "backward", functools.partial(_wrap_backward, state, calls)))
            out = original(cls, *args, **kwargs)
            devices = tuple(device_of(a) if is_tensor(a) else None for a in args)
            _note_forward(out, _Forward(raw_site(sys._getframe(1)), state.tracker.module, devices))
            return out

        return apply

    undo.enter_context(make_patch(torch.autograd.Function, "apply", wrap_apply))
    recording = [True]  # a hook on a parameter outlives the recording, and must then be as if we had never been there
    undo.add_step(recording.clear)
    undo.enter_context(
        make_patch(torch.Tensor, "register_hook", functools.partial(_wrap_register_hook, state, calls, recording, undo))
    )
    undo.enter_context(make_patch(*torch_internals.find_target("run_backward"), functools.partial(_wrap_engine, state, calls)))


def _wrap_engine(state: RecordingState, calls: Calls, original: Any) -> Any:
    """The engine with the mode active: what a checkpoint computes again is the user's code as much as the first time."""

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        if not any(getattr(mode, "_state", None) is state for mode in dispatch_modes()):  # a thread that is not recorded
            return original(*args, **kwargs)
        state.tracker.phases.add("backward")
        with _enter_mode(state, calls):
            return original(*args, **kwargs)

    return _engine_run_backward


def _wrap_register_hook(state: RecordingState, calls: Calls, recording: list[bool], undo: Undo, original: Any) -> Any:
    def register_hook(self: torch.Tensor, hook: Any) -> Any:
        if not is_users_function(hook) or hasattr(hook, KEY) or state.is_elsewhere():
            return original(self, hook)
        birth = state.births.find_birth(self)
        site = birth.site if birth is not None and birth.site is not None else raw_site(sys._getframe(1))
        forward = _Forward(site, state.tracker.module, (device_of(self),))

        @functools.wraps(hook)
        def checked(grad: torch.Tensor) -> Any:
            if not recording:
                return hook(grad)
            with _enter_mode(state, calls):
                out = hook(grad)
            return _check_gradients(state, hook, (grad,), forward, out, device_of(grad))  # the tensor may have moved

        setattr(checked, KEY, True)
        handle = original(self, checked)
        if read_attribute(self, "is_leaf"):
            undo.add_step(_restore_hook, handle, checked, hook)
        return handle

    return register_hook


def _restore_hook(handle: Any, checked: Any, hook: Any) -> None:
    """A parameter's hook, which outlives the recording, is the user's own again."""
    setattr(checked, OVER, True)
    hooks = handle.hooks_dict_ref()
    if hooks is not None and hooks.get(handle.id) is checked:
        hooks[handle.id] = hook


def _enter_mode(state: RecordingState, calls: Calls) -> contextlib.AbstractContextManager[object]:
    """A function mode, unless one of this recording is at work already."""
    modes = torch_internals.function_modes()
    active = any(getattr(mode, "_state", None) is state for mode in modes)
    return contextlib.nullcontext() if active else calls()


def _is_users(method: Any) -> bool:
    function = method.__func__ if type(method) is staticmethod else None
    while isinstance(function, PatchedFunction):  # of another recording
        function = function.__wrapped__
    return is_users_function(function)


def _note_forward(out: Any, forward: _Forward) -> None:
    for tensor in parts_of(out) if is_a(out, (tuple, list)) else (out,):
        node = read_attribute(tensor, "grad_fn") if is_tensor(tensor) else None
        if node is not None:
            node.metadata[KEY] = forward


def _wrap_backward(state: RecordingState, calls: Calls, original: Any) -> Any:
    def backward(ctx: Any, *grads: Any) -> Any:
        if state.is_elsewhere():
            return original(ctx, *grads)
        with _enter_mode(state, calls):
            out = original(ctx, *grads)
        forward = ctx.metadata.get(KEY)
        several = is_a(out, tuple)
        results = tuple(parts_of(out)) if several else (out,)
        healed = tuple(
            _check_gradients(state, original, grads, forward, result, device)
            for result, device in zip(results, forward.devices if forward else (None,) * len(results), strict=False)
        )
        healed += results[len(healed) :]
        return healed if several else healed[0]

    return backward


def _check_gradients(
    state: RecordingState, function: Any, grads: Any, forward: _Forward | None, result: Any, device: torch.device | None
) -> Any:
    right = not is_tensor(result) or device is None or device_of(result) == device or not read_attribute(result, "ndim")
    if right or forward is None or device is None:
        return result
    names = operand_names.Names(state, sys._getframe(1))
    operand = names.with_birth(operand_of(result, "gradient", "", stray=True), result, device)
    given = zip(function.__code__.co_varnames[1 : function.__code__.co_argcount], grads, strict=False)
    near = [name for name, grad in given if is_tensor(grad) and grad.device == device]
    if near and operand.birth is not None and operand.birth.function == function.__name__:
        operand = dataclasses.replace(operand, birth_partner=near[0])
    error = f"RuntimeError: invalid gradient: expected device {device} but got {result.device}"
    log_backward_fault(state, names, function, (forward.site, forward.module), operand, device, error)
    return result.to(device) if state.heal else result


def log_backward_fault(
    state: RecordingState,
    names: operand_names.Names,
    function: FunctionType,
    forward: tuple[RawSite | None, str | None],
    operand: Operand,
    device: torch.device,
    error: str,
) -> None:
    """Log that a function of the user gave backward a tensor on another device than forward had it.

    Args:
        forward: the line and the module that backward goes back through.
        device: where the tensor had to be.
        error: what torch says of it.
    """
    state.log.log_fault(
        fault_at(
            state.tracker,
            "operands",
            function.__qualname__,
            forward[0],
            module=forward[1],
            phase="backward",
            error=error,
            operands=(operand,),
            target=device_id(device),
            healed=state.heal,
            model_name=names.model_name(),
        )
    )
