"""Operators whose kernels check devices themselves, each in its own way."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.simulator.devices import cuda_errors, labels
from devwidget.simulator.devices.labels import CPU, TEMPORARY, name_of
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators import backward, guards, placement_rules
from devwidget.simulator.operators.op_schema import OpSchema


def by_packing(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Packed data stay where they are, batch sizes are on the CPU."""
    return labels.label_of(args[0]), CPU


def by_index(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Indices may stay on the CPU. Source: `TensorAdvancedIndexing.cpp`."""
    found = placement_rules.settled(schema, args, kwargs)
    own = next((operand.label for operand in found if operand.name == "self"), None)
    if own is None:  # the indexed tensor is a temporary
        own = next((operand.label for operand in found if operand.label >= 0), CPU)
    for operand in found:
        if operand.name == "indices" and operand.label not in (CPU, own):
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({name_of(own)})")
    for operand in found:
        if operand.name == "values" and operand.label != own and operand.tensor.dim() > 0:
            raise cuda_errors.two_devices(*map(name_of, sorted((own, operand.label), reverse=True)))
    backward.keep_scalar_gradients_home([operand for operand in found if operand.name == "values"], own)
    return own


def by_mask(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The value may be a CPU scalar, the mask may not. Source: `masked_fill__cuda` in `Indexing.cu`."""
    own, mask = labels.label_of(args[0]), labels.label_of(args[1])
    value = args[2] if len(args) > 2 else kwargs.get("value")
    value_label = labels.label_of(value) if isinstance(value, torch.Tensor) else own
    if own == TEMPORARY:
        own = mask
    if mask not in (own, TEMPORARY):
        if own == CPU and isinstance(value, torch.Tensor):
            raise RuntimeError("masked_fill_: Expected inputs to be on same device")
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {name_of(mask)} and self on {name_of(own)}"
        )
    if own == CPU and value_label >= 0:
        raise RuntimeError("masked_fill_: Expected inputs to be on same device")
    backward.keep_scalar_gradients_home(placement_rules.settled(schema, args, kwargs), own)
    return own


def by_where(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Every zero-dimensional tensor is brought along. Source: `where_self_out` in `TensorCompare.cpp`."""
    found = placement_rules.settled(schema, args, kwargs)
    common = next((operand.label for operand in found if operand.label >= 0), CPU)
    for operand in found:
        if operand.label != common and (operand.tensor.dim() > 0 or operand.is_output):
            raise cuda_errors.two_devices(name_of(common), name_of(operand.label))
    backward.keep_scalar_gradients_home(found, common)
    return common


def by_filling(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The value is read on the host wherever it is. Source: `Fill.cpp`."""
    found = placement_rules.settled(schema, args, kwargs)
    own = labels.label_of(args[0])
    own = found[0].label if own == TEMPORARY else own
    backward.keep_scalar_gradients_home(found, own)
    return own


def by_setting(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """A tensor may not take the memory of another device."""
    raise cuda_errors.other_memory(*(name_of(labels.label_of(tensor)) for tensor in args[:2]))


def by_multiplying(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Only the last factor may be a CPU scalar. Source: `addcmul_cuda_kernel` in `PointwiseOpsKernel.cu`."""
    common = placement_rules.by_iterator(schema, args, kwargs)
    for operand in placement_rules.settled(schema, args, kwargs):
        if common >= 0 and operand.is_cpu_scalar and operand.name in ("self", "tensor1"):
            raise RuntimeError(
                f"CPU Scalar support for {operand.name} argument is not supported when calling addcmul on "
                f"{SimulationState.accelerator.title} tensors."
            )
    return common


def by_embedding(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """A lookup is `index_select` on a GPU. Source: `Embedding.cpp`."""
    weight, indices = labels.label_of(args[0]), labels.label_of(args[1])
    raise cuda_errors.checked_argument("index", name_of(indices), name_of(weight), "_index_select")


def by_convolution(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Types are compared before devices. Source: `check_input_same_type_as_parameters` in `Convolution.cpp`."""
    given = labels.label_of(args[0])
    for place, name in ((1, "weight"), (2, "bias")):
        other = args[place]
        if other is not None and (labels.label_of(other) >= 0) != (given >= 0) and labels.label_of(other) != TEMPORARY:
            raise guards.convolution_types(args[0], other, name)
    return placement_rules.checked(placement_rules.settled(schema, args, kwargs), "_cudnn_convolution")


def by_search(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Sorted sequence and values must agree. Source: `BucketizationUtils.h`."""
    found = {operand.name: operand for operand in placement_rules.settled(schema, args, kwargs)}
    boundaries = found.get("boundaries") or found["sorted_sequence"]
    given = found["self"]
    if given.is_cpu_scalar:
        return boundaries.label
    raise RuntimeError(
        "torch.searchsorted(): boundaries and input value tensors should have same device type, but got boundaries tensor "
        f"device type {name_of(boundaries.label)} and input value tensor device type {name_of(given.label)}"
    )


def by_grid(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Source: `check_grid_sampler_common` in `GridSamplerUtils.h`."""
    given, grid = labels.label_of(args[0]), labels.label_of(args[1])
    raise RuntimeError(
        f"grid_sampler(): expected input and grid to be on same device, but input is on {name_of(given)} "
        f"and grid is on {name_of(grid)}"
    )
