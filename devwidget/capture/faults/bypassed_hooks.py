"""Find a hook that did not run, because a method of its module was called without the module."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import dict_of, is_exactly
from devwidget.capture.snapshot.wrapper_facts import displayed_class_name, group_of
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.stack import stack
from devwidget.capture.tensors import DEVICE
from devwidget.records.fault_details import HookBypassed

RUN_FORWARD = frozenset({"_call_impl", "new_forward", "forward"})
"""Functions of torch, accelerate and diffusers that run a hook which moves inputs, and what they call."""


def find_bypassed_hook(
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
        module = _first_argument(each)
        if is_module(module) and has_hook(module):
            names = {other.f_code.co_name for other in frames if _first_argument(other) is module}
            if not names & runs_hook:
                return HookBypassed(displayed_class_name(module), each.f_code.co_name)
    return None


def _first_argument(frame: FrameType) -> Any:
    code = frame.f_code
    if code.co_argcount:
        return locals_of(frame).get(code.co_varnames[0])
    return None


def moves_inputs(module: nn.Module, target: torch.device) -> bool:
    """Return whether a hook of accelerate or diffusers moves the inputs of a module to a device.

    Source: `accelerate.hooks.AlignDevicesHook`, which `add_hook_to_module` keeps in `_hf_hook` and calls in `forward`.
    """
    onload = group_of(dict_of(module)).get("onload_device")
    return _is_same(onload, target) or _moves_inputs(dict_of(module).get("_hf_hook"), target)


def _moves_inputs(hook: object, target: torch.device) -> bool:
    """Return whether a hook, or one of a `SequentialHook`, moves inputs to a device."""
    fields = dict_of(hook)
    if _is_same(fields.get("execution_device"), target):
        return True
    hooks = fields.get("hooks")
    return type(hooks) is tuple and any(_moves_inputs(each, target) for each in hooks)


def _is_same(device: object, target: torch.device) -> bool:
    """Return whether a setting of a hook is this device."""
    if device is None or not is_exactly(device, (int, str, DEVICE)):
        return False
    return str(device) in (str(target), target.type, str(target.index))
