"""Moves between virtual devices, visible to every mode as `aten._to_copy` and differentiable both ways."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.gpus import labels
from devwidget.gpus.labels import CPU, CPU_DEVICE, DEVICES, META, META_DEVICE
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import to_copy


def device_for_label(label: int) -> torch.device:
    """The device to write into a call for a label."""
    return DEVICES[label] if label >= 0 else META_DEVICE if label == META else CPU_DEVICE


class DifferentiableMove(torch.autograd.Function):
    """A copy to another device whose gradient is copied back.

    autograd's own node would not do: it compares the real devices, which are equal.
    """

    generate_vmap_rule = True  # `torch.func` takes no function without one, nor one whose `forward` is given the context

    @staticmethod
    def forward(tensor: torch.Tensor, label: int, options: dict[str, Any]) -> torch.Tensor:
        """Copy."""
        return _copy_to(tensor, label, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, int, dict[str, Any]], output: torch.Tensor) -> None:
        """Remember where from, and where to."""
        ctx.source, ctx.dtype = labels.label_of(inputs[0]), inputs[0].dtype
        ctx.target, ctx.moved_dtype = inputs[1], output.dtype

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Copy the gradient back."""
        return move_tensor(gradients[0], ctx.source, {"dtype": ctx.dtype}), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> torch.Tensor:
        """Copy the tangent along."""
        return move_tensor(tangents[0], ctx.target, {"dtype": ctx.moved_dtype})


def move_tensor(tensor: torch.Tensor, label: int, options: dict[str, Any] | None = None) -> torch.Tensor:
    """A copy of a tensor on another device.

    Args:
        tensor: what to copy.
        label: where to.
        options: dtype, non_blocking and memory_format, as `_to_copy` takes them.
    """
    options = options or {}
    dtype = options.get("dtype") or tensor.dtype
    if tensor.requires_grad and torch.is_grad_enabled() and (dtype.is_floating_point or dtype.is_complex):
        result: torch.Tensor = DifferentiableMove.apply(tensor, label, options)  # type: ignore[no-untyped-call]
        return result
    return _copy_to(tensor, label, options)


def _copy_to(tensor: torch.Tensor, label: int, options: dict[str, Any]) -> torch.Tensor:
    """Marked as meant by the user, see special_operators.py, without an option that a subclass of theirs would not know."""
    if labels.is_plain(tensor):
        return to_copy(tensor, device=device_for_label(label), pin_memory=False, **options)  # type: ignore[no-any-return]
    labels.inside.moved_subclasses += 1
    try:
        return to_copy(tensor, device=device_for_label(label), **options)  # type: ignore[no-any-return]
    finally:
        labels.inside.moved_subclasses -= 1


def own_label(tensor: torch.Tensor) -> int:
    """The label of a tensor, in the words of a user: temporaries are on the CPU, and meta is a device."""
    label = labels.label_of(tensor)
    if label < 0 and SimulationState.compute and tensor.is_meta:
        return META
    return CPU if label == labels.TEMPORARY else label


def visible_device(real: torch.device, label: int) -> torch.device:
    """What the user sees of a tensor that is on no GPU: without values, the CPU is played by meta."""
    return real if SimulationState.compute or label == META else CPU_DEVICE
