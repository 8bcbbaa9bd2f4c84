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
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.torch_internals import locate_name


@replacing
def remember_devices(original: Callable[..., Any], cls: type, *args: Any, **kwargs: Any) -> Any:
    """`Function.apply` that notes where inputs and outputs of a custom function are, for its backward."""
    inputs = [labels.label_of(a) if isinstance(a, torch.Tensor) and a.requires_grad else None for a in args]
    result = original(cls, *args, **kwargs)
    if any(label is not None for label in inputs):
        outputs = result if isinstance(result, (list, tuple)) else (result,)
        nodes = (getattr(output, "grad_fn", None) for output in outputs)
        node: Any = next((node for node in nodes if hasattr(node, "_forward_cls")), None)
        if node is not None:
            node._devwidget_inputs = inputs
            node._devwidget_outputs = [labels.label_of(o) if isinstance(o, torch.Tensor) else None for o in outputs]
    return result


@replacing
def check_custom_gradients(original: Callable[..., Any], self: Any, *args: Any) -> Any:
    """`BackwardCFunction.apply` that refuses gradients on another device than their inputs.

    Source: `validate_outputs` in `engine.cpp`.
    """
    expected = getattr(self, "_devwidget_inputs", None)
    if expected is None:
        return original(self, *args)
    _place_zeros(args, self._devwidget_outputs)
    gradients = original(self, *args)
    several = isinstance(gradients, (list, tuple))
    checked = tuple(
        check_gradient(gradient, label, place, describe_maker(type(self).__name__))
        for place, (gradient, label) in enumerate(zip(gradients if several else (gradients,), expected, strict=False))
    )
    checked += tuple(gradients)[len(checked) :] if several else ()
    if several:
        return checked
    return checked[0]


def describe_maker(node: str) -> str:
    """How the engine speaks of the node that returned a gradient."""
    return f"Function {node} returned an "


def _place_zeros(gradients: Any, outputs: list[int | None]) -> None:
    """The engine makes zeros for outputs that nobody used: they are where the output was."""
    # The boxed form.
    if len(gradients) == 1 and isinstance(gradients[0], list):
        gradients = gradients[0]
    for gradient, label in zip(gradients, outputs, strict=False):
        if isinstance(gradient, torch.Tensor) and label is not None and labels.label_of(gradient) == TEMPORARY:
            labels.put_label(gradient, label)


def check_gradient(gradient: Any, label: int | None, place: int, node: str) -> Any:
    """A gradient where it belongs; zero-dimensional ones are brought there.

    Raises:
        RuntimeError: in the words of the engine, with `node` for what made it.
    """
    if not isinstance(gradient, torch.Tensor) or label is None or label == TEMPORARY:
        return gradient
    found = labels.label_of(gradient)
    if found in (label, TEMPORARY):
        return gradient
    if gradient.dim() == 0:
        return labels.move_tensor(gradient, label)
    raise RuntimeError(f"{node}invalid gradient at index {place} - expected device {name_of(label)} but got {name_of(found)}")


# Hooks, and where a user starts from.


INPUTS_AT = 3
"""Place of the inputs whose gradients are asked for, behind the outputs, among what the engine is given."""
_outliving: list[tuple[Any, weakref.ref[Callable[..., Any]]]] = []
"""Handle, and hook as it was put on a leaf, which wraps that of the user: held weakly, for a hook may hold its leaf."""


@replacing
def check_hooks(original: Callable[..., Any], self: torch.Tensor, hook: Callable[..., Any]) -> Any:
    """`Tensor.register_hook` whose hooks may not put a gradient on another device.

    Source: `check_variable_result` in `variable.cpp`.
    """

    @functools.wraps(hook)
    def checked(gradient: torch.Tensor) -> Any:
        result = hook(gradient)
        if isinstance(result, torch.Tensor) and labels.device_of(result) != labels.device_of(gradient):
            raise _changed_type_error(gradient, result, hook)
        return result

    handle = original(self, checked)
    if read_attribute(self, "is_leaf"):  # which may outlive the simulation
        _outliving.append((handle, weakref.ref(checked)))
    return handle


def release_hooks() -> None:
    """The simulation is over: hooks of parameters, which outlive it, are the user's own again."""
    for handle, put in _outliving:
        # A weak reference too: None where the tensor is gone.
        hooks, checked = handle.hooks_dict_ref(), put()
        if hooks is not None and checked is not None and hooks.get(handle.id) is checked:
            hook: Any = checked.__wrapped__  # type: ignore[attr-defined]
            hooks[handle.id] = hook.__wrapped__ if getattr(hook, OVER, False) else hook
    _outliving.clear()


def _changed_type_error(gradient: torch.Tensor, result: torch.Tensor, hook: Callable[..., Any]) -> RuntimeError:
    was = type_text(gradient.dtype, labels.label_of(gradient) >= 0)
    got = type_text(result.dtype, labels.label_of(result) >= 0)
    name = getattr(hook, "__name__", type(hook).__name__)
    # Two GPUs: the type is the same, the engine finds the device later.
    if was == got:
        return RuntimeError(
            f"Function TensorHook returned an invalid gradient at index 0 - expected device "
            f"{labels.device_of(gradient)} but got {labels.device_of(result)}"
        )
    return RuntimeError(f"hook '{name}' has changed the type of value (was {was} got {got})")


def settle_gradient(gradient: torch.Tensor, owner: torch.Tensor) -> None:
    """Say where a gradient is that C++ has made of nothing but sizes: the engine would have made it there."""
    if labels.label_of(gradient) == labels.TEMPORARY and labels.label_of(owner) >= 0:
        labels.put_label(gradient, labels.label_of(owner))


@replacing
def check_roots(original: Callable[..., Any], t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """`_engine_run_backward` that looks at the gradients to start from, and says where those are that it returns."""
    if args and all(isinstance(output, torch.Tensor) for output in t_outputs):
        pairs = enumerate(zip(t_outputs, args[0], strict=False))
        checked = tuple(check_gradient(gradient, labels.label_of(output), place, "") for place, (output, gradient) in pairs)
        args = (checked, *args[1:])
    gradients = original(t_outputs, *args, **kwargs)
    for gradient, given in zip(gradients or (), args[INPUTS_AT] if len(args) > INPUTS_AT else (), strict=False):
        if isinstance(gradient, torch.Tensor) and isinstance(given, torch.Tensor):
            settle_gradient(gradient, given)
    return gradients


def install_gradient_checks(patches: Patches) -> None:
    """Check the gradients of `torch.autograd.Function`s."""
    patches.wrap(torch.autograd.Function, "apply", remember_devices)
    patches.wrap(*locate_name("run_backward"), check_roots)
    patches.wrap(BackwardCFunction, "apply", check_custom_gradients)
    patches.wrap(BackwardCFunction, "apply_boxed", check_custom_gradients)  # since torch 2.13
