"""Follows labels through one operator: from its arguments to the place where it runs, and on to its results."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture.patching.mode_stack import redispatch
from devwidget.capture.patching.operator_key import hide_from_modes, key_threads
from devwidget.gpus import guards, labels
from devwidget.gpus import kernels as gpu_kernels
from devwidget.gpus import rules as placement_rules
from devwidget.gpus.labels import CPU, DEVICES, LABELS, META, TEMPORARY, label_new, storage_id
from devwidget.gpus.op_schema import NOTHING, ONE, OpSchema
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import DisableTorchFunction, OpOverload

_Tensor = torch.Tensor
UNSEEN = -9
NUMBERS = (bool, int, float, complex)
"""A tensor that C++ has made of one comes down to a mode as the number, which not every operator takes."""
WANTS_TENSOR = "Expected a value of type 'Tensor'"


def run_operator(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The common path: all tensors on one device, or a rule that says where a mixture runs."""
    target, has_temporary = find_target(schema, args, kwargs)
    if target == META and SimulationState.compute:
        return placement_rules.run_beside_meta(schema, func, args, kwargs)
    if kwargs and schema.has_generator and kwargs.get("generator") is not None:
        guards.check_generator(kwargs["generator"], target)
    if schema.guard is not None:
        with DisableTorchFunction():  # the modes of a recording are active in backward
            schema.guard(schema, args, kwargs, target)
    try:
        result = (
            redispatch(func, args, kwargs)
            if SimulationState.compute
            else SimulationState.values.call_operator(func, args, kwargs)
        )
    except RuntimeError as error:
        if WANTS_TENSOR in str(error):
            return run_operator(schema, func, wrap_numbers(schema, args), kwargs)
        if target == CPU:
            raise
        result = gpu_kernels.run_substitute(schema, func, args, kwargs, target, error)
    if has_temporary and schema.written:
        adopt_temporaries(schema, args, kwargs, target)
    if target == CPU:
        return result
    if schema.fresh == ONE:
        label_new(result, target)
    elif schema.fresh != NOTHING:
        label_results(result, target)
    asked = key_threads.place.asked
    if asked is not None and asked[0] is args and not has_temporary and target >= 0 and not kwargs:
        asked[1] = DEVICES[target]
    return result


def wrap_numbers(schema: OpSchema, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with tensors for numbers where tensors are due."""
    flags = (*schema.flags, *(NOTHING,) * len(args))
    with hide_from_modes():
        return tuple(
            torch.tensor(value) if flag == ONE and isinstance(value, NUMBERS) else value
            for flag, value in zip(flags, args, strict=False)
        )


def run_without_storage(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view of a sparse tensor, or a change of it: the result has new parts, where the old ones are."""
    if isinstance(args[0], NUMBERS):
        with hide_from_modes():
            args = (torch.tensor(args[0]), *args[1:])
    label = labels.label_of(args[0])
    result = (
        redispatch(func, args, kwargs) if SimulationState.compute else SimulationState.values.call_operator(func, args, kwargs)
    )
    label_results(result, label)
    return result


def find_target(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
    """The label under which an operator runs, and whether a temporary takes part.

    This is the hot path of the whole simulation: it stays one flat loop.
    """
    target, has_temporary, get = UNSEEN, False, LABELS.get
    try:
        for flag, value in zip(schema.flags, args):  # noqa: B905  # to say strict=False costs as much as a turn of the loop
            if flag == NOTHING:
                continue
            for tensor in (value,) if flag == ONE else value or ():
                if type(tensor) is not _Tensor and not isinstance(tensor, _Tensor):
                    # None, or a Python number in the place of a tensor.
                    continue
                label = get(storage_id(tensor), CPU)
                if label == target:
                    continue
                if label == TEMPORARY:
                    has_temporary = True
                if target == UNSEEN or target == TEMPORARY:  # noqa: SIM109  # a tuple costs more on this path
                    target = label
                elif label != TEMPORARY:
                    return placement_rules.resolve_mixture(schema, args, kwargs), True
        if kwargs:
            for name in schema.keyword_tensors.intersection(kwargs):
                values = kwargs[name]
                for tensor in values if isinstance(values, (list, tuple)) else (values,):
                    label = labels.label_of(tensor) if isinstance(tensor, torch.Tensor) else target
                    has_temporary = has_temporary or label == TEMPORARY
                    if label == target or label == TEMPORARY != target:
                        continue
                    if target != UNSEEN and target != TEMPORARY:
                        return placement_rules.resolve_mixture(schema, args, kwargs), True
                    target = label
    except NotImplementedError:
        # A tensor without storage, such as a sparse one.
        return placement_rules.resolve_mixture(schema, args, kwargs), True
    return (CPU if target == UNSEEN else target), has_temporary


def adopt_temporaries(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any) -> None:
    """Temporaries that were written to are from now on where their partners are.

    Args:
        target: one label, or one for each tensor of a list.
    """
    for name in schema.written:
        place = schema.names.index(name)
        value = kwargs.get(name) if place >= len(args) else args[place]
        for at, tensor in enumerate(value if isinstance(value, (list, tuple)) else (value,)):
            # A sparse tensor that was written to consists of new parts, which nobody has labelled.
            if isinstance(tensor, torch.Tensor) and (tensor.layout != torch.strided or labels.label_of(tensor) == TEMPORARY):
                labels.put_label(tensor, target[at] if isinstance(target, tuple) else target)


def label_results(result: Any, target: Any) -> None:
    """Label every tensor of a nested result; `target` is one label or one for each."""
    if isinstance(result, torch.Tensor):
        if target != CPU:
            label_new(result, target)
    elif isinstance(result, (list, tuple)):
        for at, part in enumerate(result):
            label_results(part, target[at] if isinstance(target, tuple) else target)
