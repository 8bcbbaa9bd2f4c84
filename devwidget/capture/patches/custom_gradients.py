"""Find a hand-written backward or hook that returns a gradient on another device than its input."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.faults import operand_names
from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.object_fields import is_a, names_of, parts_of
from devwidget.capture.patching.mode_stack import dispatch_modes, has_mode_of
from devwidget.capture.patching.registry import PatchedFunction, listen
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.source_code.stack import is_users_function
from devwidget.capture.tensors import device_of, is_tensor, read_attribute
from devwidget.capture.undo import Undo

KEY, OVER = "devwidget", "devwidget_is_over"
Calls = Callable[[], contextlib.AbstractContextManager[object]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Forward:
    """What a node of autograd's graph remembers of its forward call."""

    site: RawSite | None
    module: str | None
    devices: tuple[torch.device | None, ...]


def watch_gradients(state: RecordingState, calls: Calls, undo: Undo) -> None:
    """Watch `torch.autograd.Function`s of the user.

    Args:
        state: state of the recording.
        calls: creates the function mode, which is not active in a backward started by `Tensor.backward`.
    """
    watched: dict[int, type] = {}

    def apply(original: Callable[..., Any], cls: type, *args: Any, **kwargs: Any) -> Any:
        if id(cls) not in watched and _is_users(names_of(cls).get("backward")):
            watched[id(cls)] = cls
            with uninterrupted():
                state.listen(cls, "backward", functools.partial(_run_backward, state), undo)
        out = original(cls, *args, **kwargs)
        devices = tuple(device_of(a) if is_tensor(a) else None for a in args)
        _note_forward(out, _Forward(raw_site(sys._getframe(1)), state.tracker.module, devices))
        return out

    state.listen(torch.autograd.Function, "apply", apply, undo)
    state.listen(torch.Tensor, "register_hook", functools.partial(_register_hook, state, undo), undo)
    owner, name = torch_internals.find_target("run_backward")
    listen(lambda: has_mode_of(state, dispatch_modes()), owner, name, functools.partial(_run_engine, state, calls), undo)


def _run_engine(state: RecordingState, calls: Calls, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the engine with the function mode active. What a checkpoint computes again is user code as in the first run."""
    state.tracker.phases.add("backward")
    if has_mode_of(state, torch_internals.function_modes()):
        return original(*args, **kwargs)
    with calls():
        return original(*args, **kwargs)


def _register_hook(state: RecordingState, undo: Undo, original: Any, self: torch.Tensor, hook: Any) -> Any:
    if not is_users_function(hook) or hasattr(hook, KEY):
        return original(self, hook)
    birth = state.births.find_birth(self)
    site = birth.site if birth is not None and birth.site is not None else raw_site(sys._getframe(1))
    forward = _Forward(site, state.tracker.module, (device_of(self),))

    @functools.wraps(hook)
    def checked(grad: torch.Tensor) -> Any:
        out = hook(grad)
        if state.is_here():  # it may outlive the recording
            out = _check_gradients(state, hook, (grad,), forward, out, device_of(grad))  # the tensor may have moved
        return out

    setattr(checked, KEY, True)
    handle = original(self, checked)
    if read_attribute(self, "is_leaf"):
        undo.add_step(_restore_hook, handle, checked, hook)
    return handle


def _restore_hook(handle: Any, checked: Any, hook: Any) -> None:
    """Restore a parameter's hook, which outlives the recording."""
    setattr(checked, OVER, True)
    hooks = handle.hooks_dict_ref()
    if hooks is not None and hooks.get(handle.id) is checked:
        hooks[handle.id] = hook


def _is_users(method: Any) -> bool:
    function = method.__func__ if type(method) is staticmethod else None
    while isinstance(function, PatchedFunction):  # of another recording
        function = function.__wrapped__
    return is_users_function(function)


def _note_forward(out: Any, forward: _Forward) -> None:
    results: Any = (out,)
    if is_a(out, (tuple, list)):
        results = parts_of(out)
    for tensor in results:
        if is_tensor(tensor) and (node := read_attribute(tensor, "grad_fn")) is not None:
            node.metadata[KEY] = forward


def _run_backward(state: RecordingState, original: Any, ctx: Any, *grads: Any) -> Any:
    out = original(ctx, *grads)
    forward = ctx.metadata.get(KEY)
    if forward is None:
        return out
    function = inspect.unwrap(original)  # another recording may be in between
    if not is_a(out, tuple):
        return _check_gradients(state, function, grads, forward, out, forward.devices[0])
    results = tuple(parts_of(out))
    checked = [
        _check_gradients(state, function, grads, forward, result, device)
        for result, device in zip(results, forward.devices, strict=False)
    ]
    return (*checked, *results[len(checked) :])


def _check_gradients(
    state: RecordingState, function: Any, grads: Any, forward: _Forward, result: Any, device: torch.device | None
) -> Any:
    if device is None or not is_tensor(result) or device_of(result) == device or not read_attribute(result, "ndim"):
        return result
    names = operand_names.Names(state, sys._getframe(1))
    operand = names.describe_stray(result, "gradient", "", device)
    given = zip(function.__code__.co_varnames[1 : function.__code__.co_argcount], grads, strict=False)
    tensors = [(name, grad) for name, grad in given if is_tensor(grad)]
    near = [name for name, grad in tensors if grad.device == device]
    if near and operand.birth is not None and operand.birth.function == function.__name__:
        operand = dataclasses.replace(operand, birth_partner=near[0])
    error = f"RuntimeError: invalid gradient: expected device {device} but got {result.device}"
    state.report_fault(
        "operands",
        function.__qualname__,
        forward.site,
        module=forward.module,
        phase="backward",
        error=error,
        operands=(operand,),
        target=device_id(device),
        healed=state.heal,
        model_name=names.model_name(),
    )
    if state.heal:
        return result.to(device)
    return result
