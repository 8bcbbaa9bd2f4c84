"""What CUDA's autograd engine does about devices: scalar gradients travel home, others must already be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from devwidget.capture.patching.operator_key import above_autograd
from devwidget.gpus import labels, machine, moves
from devwidget.gpus.labels import TEMPORARY, name_of
from devwidget.gpus.op_schema import PlacedOperand
from devwidget.gpus.patching import replacing

MARK = "devwidget: gradient stays on"


def keep_scalar_gradients_home(operands: Iterable[PlacedOperand], common: int) -> None:
    """Have the gradients of CPU scalars that met a GPU brought back to them, as the engine does.

    Source: `validate_outputs` in `engine.cpp`, which moves zero-dimensional gradients.
    """
    if not torch.is_grad_enabled():
        return
    for operand in operands:
        if operand.label not in (common, TEMPORARY) and operand.tensor.requires_grad:
            _bring_home(operand.tensor, operand.label)


def _bring_home(tensor: torch.Tensor, label: int) -> None:
    # A mode runs below it; the edge of a leaf can only be had above.
    with above_autograd():
        edge = torch.autograd.graph.get_gradient_edge(tensor)
    node: Any = edge.node
    number = edge.output_nr
    # Marked on the node: whoever asks for its tensors again gets new objects, and one hook is enough.
    key = f"{MARK} {number}"
    if node.metadata.get(key) == label:
        return
    node.metadata[key] = label

    def move_gradient(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        gradient = gradients[number]
        if gradient is None or labels.label_of(gradient) in (label, TEMPORARY):
            return gradients
        return (*gradients[:number], moves.move_tensor(gradient, label), *gradients[number + 1 :])

    node.register_prehook(move_gradient)


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
            node._devwidget_streams = machine.current_streams()
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
    here = next((label for label in self._devwidget_outputs if label is not None and label >= 0), TEMPORARY)
    gradients = machine.call_on(here, self._devwidget_streams, original, self, *args)
    several = isinstance(gradients, (list, tuple))
    checked = tuple(
        check_gradient(gradient, label, place, describe_maker(type(self).__name__))
        for place, (gradient, label) in enumerate(zip(gradients if several else (gradients,), expected, strict=False))
    )
    checked += tuple(gradients)[len(checked) :] if several else ()
    return checked if several else checked[0]


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
        return moves.move_tensor(gradient, label)
    raise RuntimeError(f"{node}invalid gradient at index {place} - expected device {name_of(label)} but got {name_of(found)}")
