"""Checks that some operators make on a GPU beyond that of equal devices."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.simulator.devices import cuda_errors, labels
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators import workspaces
from devwidget.simulator.operators.op_schema import Guard, OpSchema


def no_kernel(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Operators that only the CPU has.

    Raises:
        NotImplementedError: for a tensor on a GPU.
    """
    if target >= 0:
        raise cuda_errors.no_kernel("aten::" + schema.name)


def without_kernel_for(dtypes: frozenset[torch.dtype], further: Guard | None) -> Guard:
    """A guard against dtypes for which only the CPU has a kernel, behind another guard."""

    def no_kernel_for_dtype(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any) -> None:
        if further is not None:
            further(schema, args, kwargs, target)
        given = args[0] if args else None
        if isinstance(given, torch.Tensor) and given.dtype in dtypes and isinstance(target, int) and target >= 0:
            others = [each.dtype for each in args if isinstance(each, torch.Tensor)]
            if all(dtype in dtypes or not (dtype.is_floating_point or dtype.is_complex) for dtype in others):  # else promoted
                raise cuda_errors.no_dtype(schema.name, given.dtype)

    return no_kernel_for_dtype


def lengths_on_cpu(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Packing reads the lengths on the host. Source: `PackedSequence.cpp`.

    Raises:
        RuntimeError: if they are on a GPU.
    """
    lengths = args[1]
    label = labels.label_of(lengths)
    if label >= 0:
        kind = cuda_errors.type_text(lengths.dtype, False).removeprefix("torch.").removesuffix("Tensor")
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {labels.name_of(label)} {kind} tensor"
        )


def same_convolution_types(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Convolutions compare types, of which the device is a part. Source: `Convolution.cpp`.

    Raises:
        RuntimeError: if input, weight and bias differ.
    """
    if target < 0:
        return
    for place, name in ((1, "weight"), (2, "bias")):
        other = args[place]
        if other is not None and other.dtype != args[0].dtype:
            raise convolution_types(args[0], other, name)


INTEGER_KERNELS = {
    "mm": "addmm_{}",
    "addmm": "addmm_{}",
    "bmm": "baddbmm_{}",
    "baddbmm": "baddbmm_{}",
    "mv": "addmv_impl_{}",
    "addmv": "addmv_impl_{}",
    "dot": "dot",
    "vdot": "vdot",
}
"""Products that GPUs have for floating types alone, with the names under which it says so. Source: `cuda/Blas.cpp`."""


def product(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Products: not of whole numbers, and not without a workspace.

    Raises:
        NotImplementedError: for whole numbers on a GPU.
        torch.cuda.OutOfMemoryError: if the workspace does not fit.
    """
    if target < 0:
        return
    workspaces.take(target)
    dtype = args[0].dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        kind = cuda_errors.type_text(dtype, False).removeprefix("torch.").removesuffix("Tensor")
        kernel = INTEGER_KERNELS[schema.name].format(SimulationState.accelerator.type)
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{kind}'")


def same_norm_types(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Layer and group norm read weight and bias in the dtype of the input. Source: `layer_norm_kernel.cu`.

    Raises:
        RuntimeError: if they differ, on a GPU.
    """
    for other in args[1:]:
        if target >= 0 and isinstance(other, torch.Tensor) and other.dtype != args[0].dtype:
            wanted, found = (
                cuda_errors.type_text(tensor.dtype, False).removeprefix("torch.").removesuffix("Tensor")
                for tensor in (args[0], other)
            )
            raise RuntimeError(f"expected scalar type {wanted} but found {found}")


def class_indices(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Targets are 64-bit indices. Source: `NLLLoss.cu`.

    Raises:
        NotImplementedError: for others, on a GPU.
    """
    given, indices = args[0], args[1]
    if target >= 0 and indices.dtype not in (torch.int64, torch.uint8):
        accelerator = SimulationState.accelerator.type
        kernel = f"nll_loss_forward_no_reduce_{accelerator}_kernel_index"
        if args[3] != 0 or given.dim() == 1:
            kernel = f"nll_loss_forward_reduce_{accelerator}_kernel_{'2d' if given.dim() == 2 else '1d'}_index"
        kind = cuda_errors.type_text(indices.dtype, False).removeprefix("torch.").removesuffix("Tensor")
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{kind}'")


def convolution_types(given: Any, other: Any, name: str) -> RuntimeError:
    """The message of a convolution whose tensors differ in type."""
    left = cuda_errors.type_text(given.dtype, labels.label_of(given) >= 0)
    right = cuda_errors.type_text(other.dtype, labels.label_of(other) >= 0)
    return RuntimeError(f"Input type ({left}) and {name} type ({right}) should be the same")


def check_generator(generator: torch.Generator, target: int) -> None:
    """A generator draws on its own device alone.

    Raises:
        RuntimeError: in the words of the accelerator.
    """
    expected = SimulationState.accelerator.type if target >= 0 else "cpu"
    found = labels.generator_kind(generator)
    if found != expected and target != labels.META:
        raise cuda_errors.wrong_generator(expected, found)
