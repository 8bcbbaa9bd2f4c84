"""Where an operator with tensors on several devices runs, or how it fails: one rule for each habit of CUDA's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from devwidget.simulator import backward, failures, guards, labels
from devwidget.simulator.labels import CPU, TEMPORARY, name_of
from devwidget.simulator.plans import Plan


class Operand(NamedTuple):
    """One tensor of a call; `is_output` if the operator writes to it."""

    name: str
    tensor: torch.Tensor
    label: int
    is_output: bool

    @property
    def is_cpu_scalar(self) -> bool:
        """Zero-dimensional and on the CPU: what many kernels read on the host."""
        return self.label == CPU and self.tensor.dim() == 0


def resolve(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The label under which a mixed call runs.

    Raises:
        RuntimeError: in CUDA's words, if it cannot run.
    """
    with torch._C.DisableTorchFunction():
        found = list(operands(plan, args, kwargs))
        distinct = {operand.label for operand in found} - {TEMPORARY}
        if len(distinct) < 2:
            return distinct.pop() if distinct else TEMPORARY if found else CPU
        for operand in found:
            if operand.tensor.is_meta and labels.Books.compute:
                other = next(name_of(o.label) for o in found if o.label >= 0)
                raise RuntimeError(f"Tensor on device {other} is not on the expected device meta!")
        if plan.resolve is by_position:
            return by_position(plan, args, kwargs)
        assert plan.resolve is not None
        return plan.resolve(plan, args, kwargs)


def operands(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Operand]:
    """All tensors of a call, outputs included, in the order of the schema."""
    for place, name in enumerate(plan.names):
        value = args[place] if place < len(args) else kwargs.get(name)
        if name not in plan.keyword_tensors:
            continue
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield Operand(name, tensor, labels.label_of(tensor), name in plan.written)


def settled(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Operand]:
    """The operands that have a device of their own."""
    return [operand for operand in operands(plan, args, kwargs) if operand.label != TEMPORARY]


def by_iterator(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Element-wise kernels: one CPU scalar is welcome. Source: `TensorIterator.cpp`, compute_types."""
    found = settled(plan, args, kwargs)
    common = next((operand.label for operand in found if operand.label >= 0), CPU)
    scalars = 0
    outputs_first = sorted(found, key=lambda operand: not operand.is_output)
    for operand in outputs_first:
        if operand.is_cpu_scalar and not operand.is_output:
            scalars += 1
            if scalars > 1:
                raise failures.too_many_scalars()
        elif operand.label != common:
            raise failures.two_devices(name_of(common), name_of(operand.label))
    backward.keep_scalar_gradients_home(found, common)
    return common


def by_wrapper(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Kernels with a generated check: no exception for scalars. Source: `c10::impl::check_and_update_common_device`."""
    return _checked(settled(plan, args, kwargs), plan.method)


def by_equality(text: str) -> Any:
    """A rule that wants one device for all, and says so in its own words."""

    def by_own_check(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        raise RuntimeError(text)

    return by_own_check


def under_name(method: str) -> Any:
    """A rule as `by_wrapper`, for an operator that runs as another one on CUDA."""

    def by_other_wrapper(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return _checked(settled(plan, args, kwargs), method)

    return by_other_wrapper


def _checked(found: list[Operand], method: str) -> int:
    found = sorted(found, key=lambda operand: not operand.is_output)
    common = found[0].label
    for operand in found:
        if operand.label != common:
            raise failures.checked_argument(operand.name, name_of(operand.label), name_of(common), method)
    return common


def by_destination(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Copies and the like: the first tensor says where, the others may be anywhere."""
    return settled(plan, args, kwargs)[0].label


def by_packing(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Packed data stay where they are, batch sizes are on the CPU."""
    return labels.label_of(args[0]), CPU


def by_index(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Indices may stay on the CPU. Source: `TensorAdvancedIndexing.cpp`."""
    found = settled(plan, args, kwargs)
    own = next((operand.label for operand in found if operand.name == "self"), None)
    if own is None:  # the indexed tensor is a temporary
        own = next((operand.label for operand in found if operand.label >= 0), CPU)
    for operand in found:
        if operand.name == "indices" and operand.label not in (CPU, own):
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({name_of(own)})"
            )
    for operand in found:
        if operand.name == "values" and operand.label != own and operand.tensor.dim() > 0:
            raise failures.two_devices(*map(name_of, sorted((own, operand.label), reverse=True)))
    backward.keep_scalar_gradients_home([operand for operand in found if operand.name == "values"], own)
    return own


def by_mask(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
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
            "expected self and mask to be on the same device, but got mask on "
            f"{name_of(mask)} and self on {name_of(own)}"
        )
    if own == CPU and value_label >= 0:
        raise RuntimeError("masked_fill_: Expected inputs to be on same device")
    backward.keep_scalar_gradients_home(settled(plan, args, kwargs), own)
    return own


def by_where(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Every zero-dimensional tensor is brought along. Source: `where_self_out` in `TensorCompare.cpp`."""
    found = settled(plan, args, kwargs)
    common = next((operand.label for operand in found if operand.label >= 0), CPU)
    for operand in found:
        if operand.label != common and (operand.tensor.dim() > 0 or operand.is_output):
            raise failures.two_devices(name_of(common), name_of(operand.label))
    backward.keep_scalar_gradients_home(found, common)
    return common


def by_filling(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The value is read on the host wherever it is. Source: `Fill.cpp`."""
    found = settled(plan, args, kwargs)
    own = labels.label_of(args[0])
    own = found[0].label if own == TEMPORARY else own
    backward.keep_scalar_gradients_home(found, own)
    return own


by_filled_index = by_iterator


def by_embedding(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """A lookup is `index_select` on CUDA. Source: `Embedding.cpp`."""
    weight, indices = labels.label_of(args[0]), labels.label_of(args[1])
    raise failures.checked_argument("index", name_of(indices), name_of(weight), "wrapper_CUDA__index_select")


def by_convolution(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Types are compared before devices. Source: `check_input_same_type_as_parameters` in `Convolution.cpp`."""
    given = labels.label_of(args[0])
    for place, name in ((1, "weight"), (2, "bias")):
        other = args[place]
        if other is not None and (labels.label_of(other) >= 0) != (given >= 0) and labels.label_of(other) != TEMPORARY:
            raise guards.convolution_types(args[0], other, name)
    return _checked(settled(plan, args, kwargs), "wrapper_CUDA__cudnn_convolution")


def by_search(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Sorted sequence and values must agree. Source: `BucketizationUtils.h`."""
    found = {operand.name: operand for operand in settled(plan, args, kwargs)}
    boundaries = found.get("boundaries") or found["sorted_sequence"]
    given = found["self"]
    if given.is_cpu_scalar:
        return boundaries.label
    raise RuntimeError(
        "torch.searchsorted(): boundaries and input value tensors should have same device type, but got boundaries tensor "
        f"device type {name_of(boundaries.label)} and input value tensor device type {name_of(given.label)}"
    )


def by_grid(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Source: `check_grid_sampler_common` in `GridSamplerUtils.h`."""
    given, grid = labels.label_of(args[0]), labels.label_of(args[1])
    raise RuntimeError(
        f"grid_sampler(): expected input and grid to be on same device, but input is on {name_of(given)} "
        f"and grid is on {name_of(grid)}"
    )


def by_position(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Lists of tensors: the first of each list together, then the second of each, and so on."""
    lists = [value for value in args if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor)]
    answers = []
    for row in zip(*lists, strict=False):
        found = [(tensor, labels.label_of(tensor)) for tensor in row]
        settled_row = [(tensor, label) for tensor, label in found if label != TEMPORARY]
        common = next((label for _, label in settled_row if label >= 0), CPU)
        for at, (tensor, label) in enumerate(settled_row):
            if label != common and (at == 0 or label != CPU or tensor.dim() > 0):
                raise failures.two_devices(name_of(common), name_of(label))
        answers.append(common)
    return tuple(answers)
