"""Operators that do more than follow a label: those that are told a device, and sums of gradients."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import DispatchMode, redispatch, without_any_dispatch_mode
from devwidget.capture.patching.operator_key import above_autograd, hide_from_modes
from devwidget.gpus import errors as cuda_errors
from devwidget.gpus import guards, labels, machine
from devwidget.gpus import operators as propagate
from devwidget.gpus.labels import CPU, CPU_DEVICE, META, META_DEVICE, TEMPORARY
from devwidget.gpus.op_schema import OpSchema
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import DisableTorchFunction, OpOverload, graph_task, storage_holders

Holders = tuple[int, int]
"""How many in C++ and in Python hold a tensor."""


def add_gradients(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`aten::add.Tensor`, whose result is laid out as autograd's engine leaves a sum of gradients.

    The engine adds the gradients that meet at a node in place if nobody else holds the first one or its storage (`accumulate`
    in `input_buffer.cpp`). A label holds the storage, so that here a new tensor is made: of the same numbers, but a dimension
    of size one may get another stride than the first gradient has, and kernels choose their way by strides.
    """
    # Before the operator runs: its own calls hold the tensor too.
    is_alone = graph_task() >= 0 and not torch.is_grad_enabled() and _is_alone(args)
    result = propagate.run_operator(schema, func, args, kwargs)
    if not is_alone or not _is_laid_out_otherwise(args[0], result):
        return result
    target, _ = propagate.find_target(schema, args, kwargs)
    if target < 0:
        return result
    with hide_from_modes():
        strided = torch.ops.aten.new_empty_strided.default(result, result.shape, args[0].stride()).copy_(result)
    propagate.label_results(strided, target)
    return strided


def _is_alone(args: tuple[Any, ...]) -> bool:
    """Whether the engine would add in place but for the label: it alone holds the first tensor, and its storage."""
    if type(args[0]) is not torch.Tensor or _count_holders(args) != _holders_of_lone():
        return False
    with DisableTorchFunction():  # the modes of a recording are active in backward
        if args[0].layout is not torch.strided:
            return False
        return bool(storage_holders(args[0].untyped_storage()._cdata) == 2)  # the tensor, and Python


def _count_holders(args: tuple[Any, ...]) -> Holders:
    return args[0]._use_count(), sys.getrefcount(args[0])


# The counts differ between versions of Python and of torch, so they are measured and not written down.
@functools.cache
def _holders_of_lone() -> Holders:
    """As many as hold the first tensor of a sum that the engine makes in place, on its way through a mode."""
    with DisableTorchFunction(), above_autograd(), without_any_dispatch_mode(), torch.enable_grad(), _Probe() as probe:
        leaf = torch.ones(1, requires_grad=True)
        met = leaf * 1
        torch.autograd.grad([met * 2, met * 3], leaf, [torch.ones(1), torch.ones(1)])
    holders: Holders = probe.holders
    return holders


class _Probe(DispatchMode):
    holders: Holders = (0, 0)

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.aten.add_.Tensor:
            self.holders = _count_holders(args)
        return redispatch(func, args, kwargs)


def _is_laid_out_otherwise(first: torch.Tensor, result: torch.Tensor) -> bool:
    with DisableTorchFunction():
        if result.layout is not torch.strided or first.stride() == result.stride():
            return False
        return first.shape == result.shape and first.dtype == result.dtype and _is_dense(first)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether each place of its memory has one element (`is_non_overlapping_and_dense`)."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


LARGE = 1 << 20
"""Elements."""


def run_factory(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A tensor from nothing, on the device that is named."""
    label = _find_asked_label(kwargs)
    # `at::tensor` in C++ writes numbers behind the modes' back into what it made on the CPU.
    is_real = label is None and kwargs.get("device") == CPU_DEVICE
    if label is None:
        # C++ code that names the CPU copied that from a tensor; if it names nothing it means the CPU.
        label = CPU if kwargs.get("device") is None else TEMPORARY
    _refuse_pinning(label, kwargs)
    if kwargs.get("generator") is not None:
        guards.check_generator(kwargs["generator"], label)
    real = _real_kwargs(kwargs)
    if label >= 0 and SimulationState.compute and args and isinstance(args[0], (list, tuple)):
        _ask_for_room(math.prod(args[0]), kwargs.get("dtype"), label)
    result = func(*args, **kwargs) if is_real else SimulationState.values.call_factory(func, args, real, label == META)
    return _label_result(result, label, kwargs)


def _refuse_pinning(label: int, kwargs: dict[str, Any]) -> None:
    if label >= 0 and kwargs.get("pin_memory"):
        raise cuda_errors.cannot_make_pinned()


def run_like(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A tensor in the image of another: on that one's device, unless told otherwise."""
    args, kwargs = schema.device_by_name(args, kwargs)
    label = _find_asked_label(kwargs)
    if label is None:
        label, _ = propagate.find_target(schema, args, kwargs)
    _refuse_pinning(label, kwargs)
    if kwargs.get("generator") is not None:
        guards.check_generator(kwargs["generator"], label)
    result = SimulationState.values.call_factory(func, args, _real_kwargs(kwargs), label == META)
    return _label_result(result, label, kwargs)


def run_move(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_to_copy`: a copy on the device that is named, or only a change of dtype where it is."""
    label = _find_asked_label(kwargs)
    # A number that C++ wraps in a tensor comes down as a number, and goes where its partner is.
    if label is None:
        label = labels.label_of(args[0]) if isinstance(args[0], torch.Tensor) else TEMPORARY
    if label != META and not SimulationState.compute and isinstance(args[0], torch.Tensor) and labels.label_of(args[0]) == META:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if label >= 0 and SimulationState.compute and labels.is_plain(args[0]) and labels.label_of(args[0]) != label:
        _ask_for_room(args[0].numel(), kwargs.get("dtype") or args[0].dtype, label)
    kwargs = _real_kwargs(kwargs)
    kwargs.pop("non_blocking", None)
    if label == META and not SimulationState.compute:
        result = func(SimulationState.values.strip_values(args[0]), *args[1:], **kwargs, device=META_DEVICE)
    else:
        result = SimulationState.values.call_operator(func, args, kwargs)
    return _label_result(result, label, {})


def run_pin(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_pin_memory`, under a `Tensor.pin_memory` that is torch's own.

    The thread of a `DataLoader` pins batches while another may import a part of torch, which puts all patches aside.
    """
    if labels.label_of(args[0]) >= 0:
        raise cuda_errors.cannot_pin(args[0].dtype)
    return labels.mark_pinned(args[0].clone())


def run_resize(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator that may change the size of a storage, or take another one."""
    if len(args) > 1 and isinstance(args[1], torch.UntypedStorage):
        own, given = labels.label_of(args[0]), labels.LABELS.get(args[1]._cdata, CPU)
        if max(own, given) >= 0 and own != given and own != TEMPORARY:
            raise cuda_errors.other_memory(labels.name_of(own), labels.name_of(given))
    SimulationState.values.forget_values(args[0])
    result = SimulationState.values.call_operator(func, args, kwargs)
    labels.measure_tensor(result)
    return result


def _find_asked_label(kwargs: dict[str, Any]) -> int | None:
    """The label of the device that the *user* named; None if it was filled in by torch's own C++ code.

    Python's bindings always pass `pin_memory`, and so do the moves in this package, but for those of subclasses; C++ code
    that creates a tensor like another one does not, and what it read from that one is the real device.
    """
    device = kwargs.get("device")
    if device is None:
        return None
    if device.type == "cuda":
        return machine.ordinal_of(device)
    is_meant = "pin_memory" in kwargs or labels.inside.moved_subclasses > 0
    if device.type == "cpu":
        return CPU if is_meant and not labels.inside.script else None
    # Without values the real device is meta, and C++ copies that.
    return META if SimulationState.compute or is_meant else None


def _ask_for_room(count: int, dtype: torch.dtype | None, label: int) -> None:
    """Refuse a tensor that is too large for a GPU before the CPU has to find room for it.

    Raises:
        torch.cuda.OutOfMemoryError: if it does not fit.
    """
    if count > LARGE:
        ledger, requested = SimulationState.ledger, count * (dtype or torch.get_default_dtype()).itemsize
        if not ledger.could_take(label, requested):
            raise cuda_errors.out_of_memory(label, requested, ledger)


def _real_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The same arguments for the CPU."""
    kwargs = dict(kwargs)
    device = kwargs.get("device")
    if not SimulationState.compute:
        kwargs.pop("device", None)
    elif device is not None and device.type == "cuda":
        kwargs["device"] = CPU_DEVICE
    kwargs.pop("pin_memory", None)
    return kwargs


def _label_result(result: Any, label: int, kwargs: dict[str, Any]) -> Any:
    if label >= 0 or label == TEMPORARY or (label == META and not SimulationState.compute):
        propagate.label_results(result, label)
    elif kwargs.get("pin_memory") and isinstance(result, torch.Tensor):
        labels.mark_pinned(result)
    return result
