"""What becomes of one operator on virtual GPUs: the mode that each comes to, where it runs, and where its results are.

The mode asks for the schema of an operator, which names what runs it: most take the common path of `run_operator`, and where
devices are mixed the rule that `rules.py` has for it; those that are told a device, or have kernels of another library, have a
function of their own."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import DispatchMode, EndedDispatchMode, redispatch, without_any_dispatch_mode
from devwidget.capture.patching.operator_key import above_autograd, hide_from_modes, key_threads
from devwidget.gpus import errors, kernels, labels, machine, native_rules, rules
from devwidget.gpus.kernels import (
    DIVISIONS,
    GPU_FORMS,
    GUARDS,
    LACKING,
    divide_by_zero,
    has_zero_divisor,
    no_kernel,
    without_kernel_for,
)
from devwidget.gpus.labels import CPU, CPU_DEVICE, DEVICES, LABELS, META, META_DEVICE, TEMPORARY, label_new, storage_id
from devwidget.gpus.machine import Machine
from devwidget.gpus.parts import PARTS
from devwidget.gpus.rules import BY_NAME, NOTHING, ONE, OpSchema, rule_by_table
from devwidget.gpus.state import SimulationState
from devwidget.gpus.torch_internals import (
    DisableTorchFunction,
    OpOverload,
    TensorBase,
    custom_operators,
    graph_task,
    has_kernel,
    storage_holders,
    tree_leaves,
)

_Tensor = torch.Tensor
UNSEEN = -9
NUMBERS = (bool, int, float, complex)
"""A tensor that C++ has made of one comes down to a mode as the number, which not every operator takes."""
WANTS_TENSOR = "Expected a value of type 'Tensor'"


def run_operator(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The common path: all tensors on one device, or a rule that says where a mixture runs."""
    target, has_temporary = find_target(schema, args, kwargs)
    if target == META and SimulationState.compute:
        return rules.run_beside_meta(schema, func, args, kwargs)
    if kwargs and schema.has_generator and kwargs.get("generator") is not None:
        kernels.check_generator(kwargs["generator"], target)
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
        result = kernels.run_substitute(schema, func, args, kwargs, target, error)
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
                    return rules.resolve_mixture(schema, args, kwargs), True
        if kwargs:
            for name in schema.keyword_tensors.intersection(kwargs):
                values = kwargs[name]
                for tensor in values if isinstance(values, (list, tuple)) else (values,):
                    label = labels.label_of(tensor) if isinstance(tensor, torch.Tensor) else target
                    has_temporary = has_temporary or label == TEMPORARY
                    if label == target or label == TEMPORARY != target:
                        continue
                    if target != UNSEEN and target != TEMPORARY:
                        return rules.resolve_mixture(schema, args, kwargs), True
                    target = label
    except NotImplementedError:
        # A tensor without storage, such as a sparse one.
        return rules.resolve_mixture(schema, args, kwargs), True
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


# Operators that do more than follow a label: those that are told a device, and sums of gradients.


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
    result = run_operator(schema, func, args, kwargs)
    if not is_alone or not _is_laid_out_otherwise(args[0], result):
        return result
    target, _ = find_target(schema, args, kwargs)
    if target < 0:
        return result
    with hide_from_modes():
        strided = torch.ops.aten.new_empty_strided.default(result, result.shape, args[0].stride()).copy_(result)
    label_results(strided, target)
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
    label = find_asked_label(kwargs)
    # `at::tensor` in C++ writes numbers behind the modes' back into what it made on the CPU.
    is_real = label is None and kwargs.get("device") == CPU_DEVICE
    if label is None:
        # C++ code that names the CPU copied that from a tensor; if it names nothing it means the CPU.
        label = CPU if kwargs.get("device") is None else TEMPORARY
    _refuse_pinning(label, kwargs)
    if kwargs.get("generator") is not None:
        kernels.check_generator(kwargs["generator"], label)
    real = _real_kwargs(kwargs)
    if label >= 0 and SimulationState.compute and args and isinstance(args[0], (list, tuple)):
        _ask_for_room(math.prod(args[0]), kwargs.get("dtype"), label)
    result = func(*args, **kwargs) if is_real else SimulationState.values.call_factory(func, args, real, label == META)
    return _label_result(result, label, kwargs)


def _refuse_pinning(label: int, kwargs: dict[str, Any]) -> None:
    if label >= 0 and kwargs.get("pin_memory"):
        raise errors.cannot_make_pinned()


def run_like(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A tensor in the image of another: on that one's device, unless told otherwise."""
    args, kwargs = schema.device_by_name(args, kwargs)
    label = find_asked_label(kwargs)
    if label is None:
        label, _ = find_target(schema, args, kwargs)
    _refuse_pinning(label, kwargs)
    if kwargs.get("generator") is not None:
        kernels.check_generator(kwargs["generator"], label)
    result = SimulationState.values.call_factory(func, args, _real_kwargs(kwargs), label == META)
    return _label_result(result, label, kwargs)


def run_move(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_to_copy`: a copy on the device that is named, or only a change of dtype where it is."""
    label = find_asked_label(kwargs)
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
        raise errors.cannot_pin(args[0].dtype)
    return labels.mark_pinned(args[0].clone())


def run_resize(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator that may change the size of a storage, or take another one."""
    if len(args) > 1 and isinstance(args[1], torch.UntypedStorage):
        own, given = labels.label_of(args[0]), labels.LABELS.get(args[1]._cdata, CPU)
        if max(own, given) >= 0 and own != given and own != TEMPORARY:
            raise errors.other_memory(labels.name_of(own), labels.name_of(given))
    SimulationState.values.forget_values(args[0])
    result = SimulationState.values.call_operator(func, args, kwargs)
    labels.measure_tensor(result)
    return result


def find_asked_label(kwargs: dict[str, Any]) -> int | None:
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
            raise errors.out_of_memory(label, requested, ledger)


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
        label_results(result, label)
    elif kwargs.get("pin_memory") and isinstance(result, torch.Tensor):
        labels.mark_pinned(result)
    return result


# Which way each operator goes, and operators of other libraries.


def schema_of(func: OpOverload) -> OpSchema:
    """Read the schema of an operator and choose its rule."""
    schema = OpSchema(func)
    if func.namespace == "aten" and _is_composite(func):
        schema.take_apart, schema.passive, schema.resolve = find_parts, False, rule_by_table(schema)
        return schema
    if func.namespace == "aten":
        schema.special = _choose_special(schema)
    else:
        schema.special = PARTS.special.get(func.namespace, run_foreign)
        schema.take_apart = PARTS.take_apart.get(func.namespace)
    schema.resolve = BY_NAME.get(schema.name) or rule_by_table(schema)
    schema.guard = GUARDS.get(schema.name)
    if schema.name in native_rules.CPU_ONLY or schema.base in QUANTIZED_LAYERS:
        schema.guard, schema.resolve = no_kernel, rules.by_no_kernel
    dtypes = LACKING.get(schema.base, frozenset()) | LACKING.get(schema.overload, frozenset())
    if dtypes and func.namespace == "aten":
        schema.guard = without_kernel_for(dtypes, schema.guard)
    if schema.special is not None or schema.guard is not None:
        schema.passive = False
    return schema


def _choose_special(schema: OpSchema) -> Any:
    if schema.name in ("_to_copy", "to.device"):
        return run_move
    if schema.name == "_pin_memory":
        return run_pin
    if schema.name in ("resize_", "set_.source_Storage", "set_.source_Storage_storage_offset"):
        return run_resize
    if schema.name == "add.Tensor":
        return add_gradients
    if schema.name in GPU_FORMS:
        return run_instead
    if schema.written and DIVISIONS.match(schema.name):
        return divide_in_place
    if schema.has_device:
        return run_like if any(schema.flags) else run_factory
    return None


def run_instead(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator with a kernel for the CPU that GPUs do not have, for all that it is given or for some."""
    label, _ = find_target(schema, args, kwargs)
    result = GPU_FORMS[schema.name](*args, **kwargs) if label >= 0 and SimulationState.compute else None
    if result is None:
        return run_operator(schema, func, args, kwargs)
    label_results(result, label)
    return result


def divide_in_place(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A division that overwrites a tensor: at a zero the CPU would stop when a part is written."""
    target, _ = find_target(schema, args, kwargs)
    with DisableTorchFunction():  # the modes of a recording are active in backward
        if target >= 0 and SimulationState.compute and has_zero_divisor(schema, args, kwargs):
            return divide_by_zero(schema, func, args, kwargs)
    return run_operator(schema, func, args, kwargs)


def run_foreign(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator of another library: if it is written in Python, its factories reach no mode, so it must see the CPU.

    Raises:
        NotImplementedError: if it was written for other devices than GPUs.
    """
    if func.namespace == "quantized" and schema.name.partition("::")[2] not in QUANTIZED_ON_GPUS:
        _refuse_on_gpus(schema, func, args, kwargs)
    kernels = _kernels_of(func)
    if kernels and SimulationState.compute and find_target(schema, args, kwargs)[0] >= 0:
        if "cuda" not in kernels:
            raise errors.no_kernel(func._schema.name)
        func = kernels["cuda"]
    if SimulationState.compute and any(map(_is_gpu, args)):  # before torch 2.9 FSDP2 tells one where to make a tensor
        args = tuple(labels.CPU_DEVICE if _is_gpu(each) else each for each in args)
    return run_on_cpu(schema, func, args, kwargs)


def _is_gpu(given: Any) -> bool:
    return isinstance(given, torch.device) and given.type == "cuda"


def run_on_cpu(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator whose code, where it is Python, is to see the real devices."""
    labels.inside.depth += 1
    try:
        return run_operator(schema, func, args, kwargs)
    finally:
        labels.inside.depth -= 1


QUANTIZED_LAYERS = ("quantized_lstm", "quantized_gru")
"""Of `aten`, but not in its list. Source: `RNN.cpp`."""
QUANTIZED_ON_GPUS = frozenset(("embedding_bag_byte_rowwise_offsets", "embedding_bag_4bit_rowwise_offsets"))
"""Of torch's operators for quantized modules. Source: `quantized/cuda/EmbeddingBag.cu`."""


def _refuse_on_gpus(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """They have kernels for the CPU alone: for ordinary tensors, or for quantized ones."""
    name = func._schema.name
    backend = next((f"{kind}CUDA" for kind in ("", "Quantized") if has_kernel(name, f"{kind}CPU")), None)
    if backend is not None and find_target(schema, args, kwargs)[0] >= 0:
        raise errors.no_kernel(name, backend)


def _kernels_of(func: OpOverload) -> Any:
    """The functions of an operator of `torch.library.custom_op` by device, if there is not one for all devices."""
    operator = custom_operators.get(func._schema.name)
    kernels = {} if operator is None else operator._backend_fns
    return {} if None in kernels else kernels


def _is_composite(func: OpOverload) -> bool:
    """Composites only arrive here in inference mode, where nothing above has taken them apart."""
    name = func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
    # Some operators have a composite form and a kernel of their own, which rounds differently (silu_backward).
    return has_kernel(name, "CompositeImplicitAutograd") and not has_kernel(name, "CPU")


def find_parts(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """What runs the parts of a composite; None for nested tensors, which have kernels of their own."""
    if any(isinstance(arg, torch.Tensor) and arg.is_nested for arg in args):
        return None
    return func.decompose


# The mode that every operator comes to.


_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
STRIDED = torch.strided
layout_of: Callable[[torch.Tensor], torch.layout] = TensorBase.layout.__get__
"""Read without `__torch_function__`."""
SCHEMAS: dict[int, tuple[OpSchema, OpOverload]] = {}
"""By the ids of the operators, which are kept beside: their hash would be a call of Python code."""


def read_schema(func: OpOverload) -> tuple[OpSchema, OpOverload]:
    """Read the schema of an operator that comes for the first time."""
    return SCHEMAS.setdefault(id(func), (schema_of(func), func))


def _label_if_strided(value: Any) -> int | None:
    """The label of a tensor with a storage for results to share, TEMPORARY if it is not plain; None for anything else.

    A plain one that has a storage is strided; to ask for the layout of one would be a call for the function modes of a
    recording, which are active in backward.
    """
    if type(value) is _Tensor or type(value) is _Parameter:
        try:
            return LABELS.get(storage_id(value), CPU)
        except NotImplementedError:
            pass
    return TEMPORARY if isinstance(value, torch.Tensor) and layout_of(value) is STRIDED else None


def _after_fork() -> None:
    """In a child that was forked after its parent had used a GPU, tensors on GPUs are of no use."""
    if Machine.is_forked:
        # In the child alone: a check in the mode itself would cost every operator of every program.
        VirtualMode.__torch_dispatch__ = _without_gpus(VirtualMode.__torch_dispatch__)  # type: ignore[method-assign]


def _without_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __torch_dispatch__(self: Any, func: Any, args: Any, kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if Machine.is_forked and any(labels.label_of(tensor) >= 0 for tensor in tensors):
            raise errors.lost_by_fork()
        return original(self, func, args, kwargs)

    return __torch_dispatch__


os.register_at_fork(after_in_child=_after_fork)


class VirtualMode(DispatchMode):
    """One per thread; all of them share the labels."""

    def switch_below(self, on: bool) -> None:
        """Let what the mode has entered besides itself rest, or go on."""

    def _insert_mode(self, stack: list[DispatchMode]) -> int:
        """Below the modes of a recording: they are to see where results are."""
        return next((place for place, each in enumerate(stack) if not isinstance(each, VirtualMode)), len(stack))

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator on real tensors and say where its results are."""
        schema, _ = SCHEMAS.get(id(func)) or read_schema(func)
        if schema.passive:
            if schema.views_first and args:
                label = _label_if_strided(args[0])
                if label is None:
                    return run_without_storage(func, args, kwargs)
                asked = key_threads.place.asked
                if asked is not None and asked[0] is args and label >= 0:
                    asked[1] = DEVICES[label]  # a view is where its base is
            return redispatch(func, args, kwargs)
        if schema.take_apart is not None:
            run_parts = schema.take_apart(schema, func, args, kwargs)
            if run_parts is not None:
                # A mode is off while it handles an operator: entered again, it sees the parts.
                with self:
                    return run_parts(*args, **kwargs)
        if schema.special is not None:
            return schema.special(schema, func, args, kwargs)
        return run_operator(schema, func, args, kwargs)


class _AtRest(DispatchMode):
    """The mode of a thread that has outlived its simulation.

    Attributes:
        kind: what it was, and becomes again in a simulation of the same kind.
    """

    kind: type[VirtualMode]
    __torch_dispatch__ = EndedDispatchMode.__torch_dispatch__


def deactivate_mode(mode: Any) -> None:
    """The simulation is over: the mode of a thread that goes on does nothing."""
    if not isinstance(mode, VirtualMode):
        return  # it has been at rest since a simulation before that one
    mode.switch_below(False)
    at_rest: Any = mode
    # Only its own thread could take the mode off its stack, so here it becomes one that does nothing.
    at_rest.kind, at_rest.__class__ = type(mode), _AtRest


def reactivate_mode(mode: Any) -> None:
    """A simulation has begun: threads of an earlier one belong to it, unless only one of both has values."""
    if isinstance(mode, _AtRest) and mode.kind is _kind_of_mode():
        woken: Any = mode
        woken.__class__ = mode.kind
        woken.switch_below(True)


def new_mode() -> Any:
    """The mode of the running simulation, for one thread."""
    return _kind_of_mode()()


def _kind_of_mode() -> type[VirtualMode]:
    return SimulationState.values.mode or VirtualMode
