"""Where an operator with tensors on several devices runs, or how it fails: one rule for each habit of a GPU's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from devwidget.records.errors import message
from devwidget.simulator.devices import cuda_errors, labels
from devwidget.simulator.devices.labels import CPU, META, TEMPORARY, name_of
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators import backward
from devwidget.simulator.operators.op_schema import OpSchema
from devwidget.simulator.operators.operand import Operand
from devwidget.simulator.torch_internals import DisableTorchFunction, OpOverload


def resolve(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The label under which a mixed call runs.

    Raises:
        RuntimeError: in the words of the accelerator, if it cannot run.
    """
    with DisableTorchFunction():
        found = list(operands(schema, args, kwargs))
        distinct = {operand.label for operand in found} - {TEMPORARY}
        if len(distinct) < 2:
            return distinct.pop() if distinct else TEMPORARY if found else CPU
        on_meta = any(operand.tensor.is_meta for operand in found)
        if on_meta and SimulationState.compute and schema.resolve is not by_destination:
            return META
        if schema.resolve is by_position:
            return by_position(schema, args, kwargs)
        assert schema.resolve is not None
        return schema.resolve(schema, args, kwargs)


def operands(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Operand]:
    """All tensors of a call, outputs included, in the order of the schema."""
    for place, name in enumerate(schema.names):
        value = args[place] if place < len(args) else kwargs.get(name)
        if name not in schema.keyword_tensors:
            continue
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield Operand(name, tensor, labels.label_of(tensor), name in schema.written)


def settled(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Operand]:
    """The operands that have a device of their own."""
    return [operand for operand in operands(schema, args, kwargs) if operand.label != TEMPORARY]


def beside_meta(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """GPU tensors with meta tensors: torch runs its meta kernel, which checks some operators and not others.

    Raises:
        RuntimeError: in the words of the meta kernel.
    """
    gpu = next(operand.label for operand in operands(schema, args, kwargs) if operand.label >= 0)
    try:
        result = func(*args, **kwargs)
    except RuntimeError as error:
        raise type(error)(message(error).replace("device cpu", f"device {name_of(gpu)}")) from None
    for tensor in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
            labels.put_label(tensor, gpu)
    return result


def by_iterator(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Element-wise kernels: one CPU scalar is welcome. Source: `TensorIterator.cpp`, compute_types."""
    found = settled(schema, args, kwargs)
    common = next((operand.label for operand in found if operand.label >= 0), CPU)
    scalars = 0
    outputs_first = sorted(found, key=lambda operand: not operand.is_output)
    for operand in outputs_first:
        if operand.is_cpu_scalar and not operand.is_output:
            scalars += 1
            if scalars > 1:
                raise cuda_errors.too_many_scalars()
        elif operand.label != common:
            raise cuda_errors.two_devices(name_of(common), name_of(operand.label))
    backward.keep_scalar_gradients_home(found, common)
    return common


def by_wrapper(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Kernels with a generated check: no exception for scalars. Source: `c10::impl::check_and_update_common_device`."""
    return checked(settled(schema, args, kwargs), schema.method)


def by_equality(text: str) -> Any:
    """A rule that wants one device for all, and says so in its own words."""

    def by_own_check(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        raise RuntimeError(text)

    return by_own_check


def under_name(method: str) -> Any:
    """A rule as `by_wrapper`, for an operator that runs as another one on a GPU."""

    def by_other_wrapper(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return checked(settled(schema, args, kwargs), method)

    return by_other_wrapper


def checked(found: list[Operand], method: str) -> int:
    """The one device of all operands, or the error of a generated check."""
    found = sorted(found, key=lambda operand: not operand.is_output)
    common = found[0].label
    for operand in found:
        if operand.label != common:
            raise cuda_errors.checked_argument(operand.name, name_of(operand.label), name_of(common), method)
    return common


def by_destination(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Copies and the like: the first tensor says where, the others may be anywhere."""
    return settled(schema, args, kwargs)[0].label


def by_position(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Lists of tensors: the first of each list together, then the second of each, and so on."""
    lists = [value for value in args if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor)]
    answers = []
    for row in zip(*lists, strict=False):
        found = [(tensor, labels.label_of(tensor)) for tensor in row]
        settled_row = [(tensor, label) for tensor, label in found if label != TEMPORARY]
        common = next((label for _, label in settled_row if label >= 0), CPU)
        for at, (tensor, label) in enumerate(settled_row):
            if label != common and (at == 0 or label != CPU or tensor.dim() > 0):
                raise cuda_errors.two_devices(name_of(common), name_of(label))
        answers.append(common)
    return tuple(answers)
