"""What CUDA's autograd engine does about devices: scalar gradients travel home, others must already be there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from devwidget.simulator import internals, labels, moves
from devwidget.simulator.labels import TEMPORARY, name_of

if TYPE_CHECKING:
    from devwidget.simulator.mixing import Operand

MARK = "devwidget: gradient stays on"


def keep_scalar_gradients_home(operands: Iterable[Operand], common: int) -> None:
    """Have the gradients of CPU scalars that met a GPU brought back to them, as the engine does.

    Source: `validate_outputs` in `engine.cpp`, which moves zero-dimensional gradients.
    """
    if not torch.is_grad_enabled():
        return
    for operand in operands:
        if operand.label not in (common, TEMPORARY) and operand.tensor.requires_grad:
            _bring_home(operand.tensor, operand.label)


def _bring_home(tensor: torch.Tensor, label: int) -> None:
    # A mode runs below autograd; the edge of a leaf can only be had above it.
    with internals.C._RestorePythonTLSSnapshot(), torch._C._DisableTorchDispatch():
        edge = torch.autograd.graph.get_gradient_edge(tensor)
    node: Any = edge.node
    number = edge.output_nr
    key = f"{MARK} {number}"
    if node.metadata.get(key) == label:
        return
    node.metadata[key] = label

    def move_gradient(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        gradient = gradients[number]
        if gradient is None or labels.label_of(gradient) in (label, TEMPORARY):
            return gradients
        return (*gradients[:number], moves.move(gradient, label), *gradients[number + 1 :])

    node.register_prehook(move_gradient)


def remember_devices(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Function.apply` that notes where inputs and outputs of a custom function are, for its backward."""

    @functools.wraps(original)
    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        inputs = [labels.label_of(a) if isinstance(a, torch.Tensor) and a.requires_grad else None for a in args]
        result = original.__get__(None, cls)(*args, **kwargs)
        if any(label is not None for label in inputs):
            outputs = result if isinstance(result, (list, tuple)) else (result,)
            nodes = (getattr(output, "grad_fn", None) for output in outputs)
            node: Any = next((node for node in nodes if hasattr(node, "_forward_cls")), None)
            if node is not None:
                node._devwidget_inputs = inputs
                node._devwidget_outputs = [labels.label_of(o) if isinstance(o, torch.Tensor) else None for o in outputs]
        return result

    return apply


def check_custom_gradients(original: Callable[..., Any]) -> Callable[..., Any]:
    """`BackwardCFunction.apply` that refuses gradients on another device than their inputs.

    Source: `validate_outputs` in `engine.cpp`.
    """

    @functools.wraps(original)
    def apply(self: Any, *args: Any) -> Any:
        expected = getattr(self, "_devwidget_inputs", None)
        if expected is None:
            return original(self, *args)
        _place_zeros(args, self._devwidget_outputs)
        gradients = original(self, *args)
        several = isinstance(gradients, (list, tuple))
        checked = tuple(
            _validated(gradient, label, place, type(self).__name__)
            for place, (gradient, label) in enumerate(zip(gradients if several else (gradients,), expected, strict=False))
        )
        checked += tuple(gradients)[len(checked) :] if several else ()
        return checked if several else checked[0]

    return apply


def _place_zeros(gradients: Any, outputs: list[int | None]) -> None:
    """The engine makes zeros for outputs that nobody used: they are where the output was."""
    if len(gradients) == 1 and isinstance(gradients[0], list):  # the boxed form
        gradients = gradients[0]
    for gradient, label in zip(gradients, outputs, strict=False):
        if isinstance(gradient, torch.Tensor) and label is not None and labels.label_of(gradient) == TEMPORARY:
            labels.put_label(gradient, label)


def _validated(gradient: Any, label: int | None, place: int, node: str) -> Any:
    if not isinstance(gradient, torch.Tensor) or label is None or label == TEMPORARY:
        return gradient
    found = labels.label_of(gradient)
    if found in (label, TEMPORARY):
        return gradient
    if gradient.dim() == 0:
        return moves.move(gradient, label)
    raise RuntimeError(
        f"Function {node} returned an invalid gradient at index {place} - expected device {name_of(label)} "
        f"but got {name_of(found)}"
    )


def check_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Tensor.register_hook` whose hooks may not put a gradient on another device.

    Source: `check_variable_result` in `variable.cpp`.
    """

    @functools.wraps(original)
    def register_hook(self: torch.Tensor, hook: Callable[..., Any]) -> Any:
        @functools.wraps(hook)
        def checked(gradient: torch.Tensor) -> Any:
            result = hook(gradient)
            if isinstance(result, torch.Tensor) and labels.device_of(result) != labels.device_of(gradient):
                raise _changed_type(gradient, result, hook)
            return result

        return original(self, checked)

    return register_hook


def _changed_type(gradient: torch.Tensor, result: torch.Tensor, hook: Callable[..., Any]) -> RuntimeError:
    from devwidget.simulator.failures import type_text

    was = type_text(gradient.dtype, labels.label_of(gradient) >= 0)
    got = type_text(result.dtype, labels.label_of(result) >= 0)
    name = getattr(hook, "__name__", type(hook).__name__)
    if was == got:  # two GPUs: the type is the same, the engine finds the device later
        return RuntimeError(
            f"Function TensorHook returned an invalid gradient at index 0 - expected device "
            f"{labels.device_of(gradient)} but got {labels.device_of(result)}"
        )
    return RuntimeError(f"hook '{name}' has changed the type of value (was {was} got {got})")
