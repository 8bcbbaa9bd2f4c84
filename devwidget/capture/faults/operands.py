"""Operands that a call does not take where they are: on devices that it does not mix, without data, or not on the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.devices import default_device
from devwidget.capture.faults import healing, operand_names, owners
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall, arguments
from devwidget.capture.object_fields import dict_of, is_a, is_among, is_exactly
from devwidget.capture.recording.event_log import device_id, lost_operand
from devwidget.capture.snapshot.odd_tensors import is_distributed
from devwidget.capture.snapshot.wrapper_facts import displayed_class_name, find_wrapping, group_of, hooks_of
from devwidget.capture.source_code.call_sites import call_text, line_of, raw_site
from devwidget.capture.source_code.stack import first_argument, stack, user_frames
from devwidget.capture.source_code.statements import statement_text
from devwidget.capture.tensors import DEVICE, device_of, is_module, tensors_below
from devwidget.records.device import KINDS, PLACING_METHODS
from devwidget.records.errors import message
from devwidget.records.fault_details import HookBypassed
from devwidget.records.syntax import is_inplace

_DEVICE_WORDS = re.compile(
    rf"same device|expected (all tensors|device)|on (the )?(cpu|{'|'.join(KINDS)}|meta)\b|device type|(weight|bias|hidden) type"
    r"|\bCPU\b.*\btensor",
    re.IGNORECASE,
)
HOST_WORDS = re.compile(r"to numpy|1D CPU int64 tensor|cannot pin|must be (on|a) (the )?cpu", re.IGNORECASE)
"""The message of a call that takes tensors of the host alone."""

_ON_HOST = frozenset({"batch_sizes", "lengths"})
"""Arguments that belong on the CPU, wherever the others are."""

_RUN_FORWARD = frozenset({"_call_impl", "new_forward", "forward"})
"""Functions of torch, accelerate and diffusers that run a hook which moves inputs, and what they call."""
_RUN_SHARDED = frozenset({"_call_impl", "wrapped_method"})
"""Functions of torch that run the hooks of `fully_shard`: for a call of the module, and for a registered method."""


def handle_mixed_devices(call: FailedCall) -> Any:
    """Repair by moving the misplaced tensors to their partners. If that works, the exception was about devices, whatever its
    text.
    """
    tensors = call.tensors()
    target = healing.target_device(call.name, tensors, call.state)
    if target is None:
        return NOT_OURS
    if call.name == "__getitem__" and _is_moved_on(call.frame):
        target = tensors[0].device  # the rows are moved; a large table stays on the host
    on_host = [tensor for name, tensor in arguments(call.func, call.args, call.kwargs) if name in _ON_HOST]
    strays = [tensor for tensor in healing.strays(tensors, target, call.name) if not is_among(tensor, on_host)]
    moved, home = strays, target
    if is_inplace(call.name) and tensors[0].dim() and tensors[0].device != target:
        home = tensors[0].device  # it must be written where it is, though it may be the one that is astray
        moved = [tensor for tensor in tensors if tensor.device != home]
    out = call.again_moved(moved, home)
    if out is not NOT_OURS or _DEVICE_WORDS.search(message(call.error)):
        bypassed = _find_bypassed_hook(call.frame, lambda module: _moves_inputs(module, target), _RUN_FORWARD)
        call.report("operands", strays, target, out, bypassed)
    return out


def _is_moved_on(frame: FrameType | None) -> bool:
    """Return whether the line of a frame moves the result of its running call: `table[index].to(device)`."""
    raw = raw_site(frame)
    text = call_text(raw)
    if raw is None or not text:
        return False
    statement = statement_text(raw.code.co_filename, line_of(raw))
    return any(f"{text}.{method}(" in statement for method in PLACING_METHODS)


def handle_host_only(call: FailedCall) -> Any:
    """Repair by moving to the CPU the first argument with which the call succeeds. A tensor to be pinned is not moved."""
    if not HOST_WORDS.search(message(call.error)):
        return NOT_OURS
    cpu = torch.device("cpu")
    candidates = [tensor for tensor in call.tensors() if healing.is_accelerator(tensor.device)]
    if not call.state.heal:  # nothing can be tried: the last one it is
        candidates = candidates[-1:]
    for stray in reversed(candidates):  # the data comes first, what belongs on the host after it
        out: Any = NOT_OURS
        if call.name != "pin_memory":
            out = call.again_moved([stray], cpu)
        elif call.state.heal:
            out = stray
        if out is not NOT_OURS or stray is candidates[0]:
            call.report("operands", [stray], cpu, out)
            return out
    return NOT_OURS


def handle_meta(call: FailedCall) -> Any:
    """Repair with zeros in place of the data that was never loaded."""
    tensors = call.tensors()
    strays = [tensor for tensor in tensors if tensor.is_meta]
    if not strays or "meta" not in message(call.error):
        return NOT_OURS
    real = [tensor.device for tensor in tensors if not tensor.is_meta]
    target = next(filter(healing.is_accelerator, real), next(iter(real), torch.device("cpu")))
    out = call.again_changing(strays, lambda tensor: torch.zeros_like(tensor, device=target))
    call.report("meta", strays, target, out)
    return out


def handle_generator(call: FailedCall) -> Any:
    """Repair a random generator on another device type than the requested numbers: a new one with the same seed."""
    # Virtual GPUs replace torch.Generator by their own class.
    given = (call.kwargs.get("generator"), *call.args)
    generator = next((value for value in given if is_a(value, torch_internals.Generator)), None)
    if generator is None or "generator" not in message(call.error).lower():
        return NOT_OURS
    asked, there = call.kwargs.get("device"), [tensor.device for tensor in call.tensors()]
    target = torch.device(asked) if asked is not None else next(iter(there), default_device())
    if target.type == generator.device.type:
        return NOT_OURS
    out = NOT_OURS
    if call.state.heal:
        out = call.again_replacing(generator, torch.Generator(target).manual_seed(generator.initial_seed()))
    made = owners.find_built(call.state.tracker, user_frames(call.frame), generator)
    found, expression = device_id(generator.device), operand_names.Names(call.state, call.frame).expression(generator)
    operand = lost_operand(found, "generator", expression, "Generator", stray=True, birth=made)
    call.report("operands", (), target, out, others=(operand,))
    return out


def handle_mixed_dtensors(call: FailedCall) -> Any:
    """Record the plain tensors among DTensors. A repair would communicate, which the other ranks may not do."""
    if "mixed torch.Tensor and DTensor" not in message(call.error):
        return NOT_OURS
    distributed, strays = list[torch.Tensor](), list[torch.Tensor]()
    for tensor in call.tensors():
        if is_distributed(tensor):
            distributed.append(tensor)
        elif tensor.numel() != 1:  # torch replicates a single number itself
            strays.append(tensor)
    if distributed and strays:
        bypassed = _find_bypassed_hook(call.frame, lambda module: _is_sharded(module, distributed), _RUN_SHARDED)
        call.report("dtensor", strays, device_of(distributed[0]), NOT_OURS, bypassed)
    return NOT_OURS


# Hooks that did not run, because a method of their module was called without the module.


def _find_bypassed_hook(
    frame: FrameType, has_hook: Callable[[nn.Module], bool], runs_hook: frozenset[str]
) -> HookBypassed | None:
    """Return the innermost method that runs without the hook of its module.

    Args:
        frame: the frame that failed.
        has_hook: whether a module has such a hook.
        runs_hook: names of the functions that run it.
    """
    frames = [each for _, each in stack(frame)]
    for each in frames:
        module = first_argument(each)
        if is_module(module) and has_hook(module):
            names = {other.f_code.co_name for other in frames if first_argument(other) is module}
            if not names & runs_hook:
                return HookBypassed(displayed_class_name(module), each.f_code.co_name)
    return None


def _is_sharded(module: nn.Module, tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether `fully_shard` was applied to a module that has one of these tensors."""
    if find_wrapping(type(module)).word != "FSDP2":
        return False
    owned = tensors_below(module)
    return any(is_among(tensor, owned) for tensor in tensors)


def _moves_inputs(module: nn.Module, target: torch.device) -> bool:
    """Return whether a hook of accelerate or diffusers moves the inputs of a module to a device.

    Source: `accelerate.hooks.AlignDevicesHook`, which `add_hook_to_module` keeps in `_hf_hook` and calls in `forward`.
    """
    own = dict_of(module)
    devices = [dict_of(hook).get("execution_device") for hook in hooks_of(own)]
    return any(_means(device, target) for device in (group_of(own).get("onload_device"), *devices))


def _means(device: object, target: torch.device) -> bool:
    """Return whether a setting of a hook is this device."""
    if not is_exactly(device, (int, str, DEVICE)):
        return False
    return str(device) in (str(target), target.type, str(target.index))
