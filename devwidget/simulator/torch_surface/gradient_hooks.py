"""Gradients that hooks return and that users start from: they must be where the engine expects them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from devwidget.capture.patches.custom_gradients import OVER
from devwidget.capture.tensors import seen
from devwidget.simulator.devices import labels, machine
from devwidget.simulator.devices.cuda_errors import type_text
from devwidget.simulator.operators.backward import check_gradient, describe_maker

INPUTS_AT = 3
"""Place of the inputs whose gradients are asked for, behind the outputs, among what the engine is given."""
_outliving: list[tuple[Any, Any, Any]] = []
"""Handle, hook as it was put on a leaf, and hook of the user."""


def check_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Tensor.register_hook` whose hooks may not put a gradient on another device.

    Source: `check_variable_result` in `variable.cpp`.
    """

    @functools.wraps(original)
    def register_hook(self: torch.Tensor, hook: Callable[..., Any]) -> Any:
        streams = machine.current_streams()

        @functools.wraps(hook)
        def checked(gradient: torch.Tensor) -> Any:
            result = machine.call_on(labels.label_of(gradient), streams, hook, gradient)
            if isinstance(result, torch.Tensor) and labels.device_of(result) != labels.device_of(gradient):
                raise _changed_type(gradient, result, hook)
            return result

        handle = original(self, checked)
        if seen(self, "is_leaf"):
            remember(handle, checked, hook)
        return handle

    return register_hook


def remember(handle: Any, put: Callable[..., Any], hook: Callable[..., Any]) -> None:
    """A hook of a leaf, which may outlive the simulation, and what was put in its place."""
    _outliving.append((handle, put, hook))


def release_hooks() -> None:
    """The simulation is over: hooks of parameters, which outlive it, are the user's own again."""
    for handle, checked, hook in _outliving:
        hooks = handle.hooks_dict_ref()
        if hooks is not None and hooks.get(handle.id) is checked:
            hooks[handle.id] = hook.__wrapped__ if getattr(hook, OVER, False) else hook
    _outliving.clear()


def _changed_type(gradient: torch.Tensor, result: torch.Tensor, hook: Callable[..., Any]) -> RuntimeError:
    was = type_text(gradient.dtype, labels.label_of(gradient) >= 0)
    got = type_text(result.dtype, labels.label_of(result) >= 0)
    name = getattr(hook, "__name__", type(hook).__name__)
    if was == got:  # two GPUs: the type is the same, the engine finds the device later
        return RuntimeError(
            f"Function TensorHook returned an invalid gradient at index 0 - expected device "
            f"{labels.device_of(gradient)} but got {labels.device_of(result)}"
        )
    return RuntimeError(f"hook '{name}' has changed the type of value (was {was} got {got})")


def check_module_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    """`BackwardHook._apply_on_tensors` that looks at what the full backward hooks of a module made of the gradients."""

    @functools.wraps(original)
    def _apply_on_tensors(self: Any, fn: Callable[[Any], None], args: Any) -> Any:
        def hooked_and_checked(node: Any) -> None:
            fn(_There(node))
            expected = getattr(node, "_devwidget_inputs", [])
            name = describe_maker(type(node).__name__)

            def check(gradients: Sequence[Any], outputs: Any) -> Any:
                places = enumerate(zip(gradients, expected, strict=False))
                checked = tuple(check_gradient(gradient, label, place, name) for place, (gradient, label) in places)
                return checked + tuple(gradients[len(checked) :])

            node.register_hook(check)

        return original(self, hooked_and_checked, args)

    return _apply_on_tensors


class _There:
    """A node whose hook runs with the GPU of its gradients as the current one."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Put it on the node."""
        streams = machine.current_streams()

        def there(*gradients: Sequence[Any]) -> Any:
            found = (labels.label_of(each) for group in gradients for each in group if isinstance(each, torch.Tensor))
            return machine.call_on(max(found, default=labels.CPU), streams, hook, *gradients)

        return self._node.register_hook(there)


def settle(gradient: torch.Tensor, owner: torch.Tensor) -> None:
    """Say where a gradient is that C++ has made of nothing but sizes: the engine would have made it there."""
    if labels.label_of(gradient) == labels.TEMPORARY and labels.label_of(owner) >= 0:
        labels.put_label(gradient, labels.label_of(owner))


def check_roots(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_engine_run_backward` that looks at the gradients to start from, and says where those are that it returns."""

    @functools.wraps(original)
    def _engine_run_backward(t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if args and all(isinstance(output, torch.Tensor) for output in t_outputs):
            pairs = enumerate(zip(t_outputs, args[0], strict=False))
            checked = tuple(check_gradient(gradient, labels.label_of(output), place, "") for place, (output, gradient) in pairs)
            args = (checked, *args[1:])
        gradients = original(t_outputs, *args, **kwargs)
        for gradient, given in zip(gradients or (), args[INPUTS_AT] if len(args) > INPUTS_AT else (), strict=False):
            if isinstance(gradient, torch.Tensor) and isinstance(given, torch.Tensor):
                settle(gradient, given)
        return gradients

    return _engine_run_backward
