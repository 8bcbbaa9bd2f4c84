"""Gradients in backward: where those must be that hooks and functions return and users start from."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from devwidget.capture.patches.custom_gradients import OVER
from devwidget.capture.tensors import read_attribute
from devwidget.gpus import labels
from devwidget.gpus.errors import type_text
from devwidget.gpus.labels import TEMPORARY, name_of
from devwidget.gpus.patching import replaces
from devwidget.gpus.torch_internals import locate_name


@replaces(torch.autograd.Function, "apply")
def _remember_devices(original: Callable[..., Any], cls: type, *args: Any, **kwargs: Any) -> Any:
    inputs = [_label_of_any(arg) if isinstance(arg, torch.Tensor) and arg.requires_grad else None for arg in args]
    result = original(cls, *args, **kwargs)
    outputs = result if isinstance(result, (list, tuple)) else (result,)
    nodes = (getattr(output, "grad_fn", None) for output in outputs)
    node: Any = next((node for node in nodes if hasattr(node, "_forward_cls")), None)
    if node is not None and inputs.count(None) < len(inputs):
        node._devwidget_inputs, node._devwidget_outputs = inputs, list(map(_label_of_any, outputs))
    return result


def _label_of_any(value: Any) -> int | None:
    if isinstance(value, torch.Tensor):
        return labels.label_of(value)
    return None


@replaces(BackwardCFunction, "apply", "apply_boxed")  # the second since torch 2.13
def _check_custom_gradients(original: Callable[..., Any], self: Any, *args: Any) -> Any:
    """Refuse gradients on another device than their inputs. Source: `validate_outputs` in `engine.cpp`."""
    expected = getattr(self, "_devwidget_inputs", None)
    if expected is None:
        return original(self, *args)
    _place_zeros(args, self._devwidget_outputs)
    gradients = original(self, *args)
    node = f"Function {type(self).__name__} returned an "
    if not isinstance(gradients, (list, tuple)):
        return _check_gradient(gradients, expected[0], 0, node)
    pairs = enumerate(zip(gradients, expected, strict=False))
    checked = tuple(_check_gradient(gradient, label, place, node) for place, (gradient, label) in pairs)
    return checked + tuple(gradients[len(checked) :])


def _place_zeros(gradients: Any, outputs: list[int | None]) -> None:
    """The engine makes zeros for unused outputs: they are where the output was."""
    if len(gradients) == 1 and isinstance(gradients[0], list):  # boxed
        gradients = gradients[0]
    for gradient, label in zip(gradients, outputs, strict=False):
        if isinstance(gradient, torch.Tensor) and label is not None and labels.label_of(gradient) == TEMPORARY:
            labels.put_label(gradient, label)


def _check_gradient(gradient: Any, label: int | None, place: int, node: str) -> Any:
    """Return a gradient where it belongs: zero-dimensional ones are moved there, others refused in the words of the engine."""
    if not isinstance(gradient, torch.Tensor) or label is None or label == TEMPORARY:
        return gradient
    found = labels.label_of(gradient)
    if found in (label, TEMPORARY):
        return gradient
    if gradient.dim() == 0:
        return labels.move_tensor(gradient, label)
    raise RuntimeError(f"{node}invalid gradient at index {place} - expected device {name_of(label)} but got {name_of(found)}")


INPUTS_AT = 3
"""Place of the inputs whose gradients are asked for, behind the outputs, among what the engine is given."""
_outliving: list[tuple[Any, weakref.ref[Callable[..., Any]]]] = []
"""Handle, and hook as it was put on a leaf, which wraps that of the user: held weakly, for a hook may hold its leaf."""


@replaces(torch.Tensor, "register_hook")
def _check_hook(original: Callable[..., Any], self: torch.Tensor, hook: Callable[..., Any]) -> Any:
    """Refuse a hook that moves a gradient to another device. Source: `check_variable_result` in `variable.cpp`."""

    @functools.wraps(hook)
    def checked(gradient: torch.Tensor) -> Any:
        result = hook(gradient)
        if isinstance(result, torch.Tensor):
            was, got = (type_text(each.dtype, labels.label_of(each) >= 0) for each in (gradient, result))
            if was != got:
                name = getattr(hook, "__name__", type(hook).__name__)
                raise RuntimeError(f"hook '{name}' has changed the type of value (was {was} got {got})")
        # The engine finds another GPU later.
        return _check_gradient(result, labels.label_of(gradient), 0, "Function TensorHook returned an ")

    handle = original(self, checked)
    if read_attribute(self, "is_leaf"):  # which may outlive the simulation
        _outliving.append((handle, weakref.ref(checked)))
    return handle


def release_hooks() -> None:
    """Give hooks of parameters, which outlive the simulation, back to the user."""
    for handle, put in _outliving:
        hooks, checked = handle.hooks_dict_ref(), put()  # None where the tensor is gone
        if hooks is not None and checked is not None and hooks.get(handle.id) is checked:
            hook: Any = checked.__wrapped__  # type: ignore[attr-defined]
            hooks[handle.id] = hook.__wrapped__ if getattr(hook, OVER, False) else hook
    _outliving.clear()


def settle_gradient(gradient: torch.Tensor, owner: torch.Tensor) -> None:
    """Say where a gradient is that C++ has made of nothing but sizes: the engine would have made it there."""
    if labels.label_of(gradient) == labels.TEMPORARY and labels.label_of(owner) >= 0:
        labels.put_label(gradient, labels.label_of(owner))


@replaces(*locate_name("run_backward"))
def _check_roots(original: Callable[..., Any], t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    if args and all(isinstance(output, torch.Tensor) for output in t_outputs):
        pairs = enumerate(zip(t_outputs, args[0], strict=False))
        checked = tuple(_check_gradient(gradient, labels.label_of(output), place, "") for place, (output, gradient) in pairs)
        args = (checked, *args[1:])
    gradients = original(t_outputs, *args, **kwargs)
    for gradient, given in zip(gradients or (), args[INPUTS_AT] if len(args) > INPUTS_AT else (), strict=False):
        if isinstance(gradient, torch.Tensor) and isinstance(given, torch.Tensor):
            settle_gradient(gradient, given)
    return gradients
