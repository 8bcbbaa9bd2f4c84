"""What becomes of one operator on virtual GPUs: the mode that each comes to, where it runs, and where its results are.

The mode asks for the schema of an operator, which names what runs it: most take the common path of `run_operator`, and where
devices are mixed the rule that `rules.py` has for it; operators with a device argument, or of another library, have a
function of their own."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.mode_stack import DispatchMode, EndedDispatchMode, redispatch, without_any_dispatch_mode
from devwidget.capture.patching.operator_key import above_autograd, hide_from_modes, key_threads
from devwidget.gpus import errors, kernels, labels, machine, native_rules, rules
from devwidget.gpus.call import NOTHING, ONE, Call, OpSchema, Special, Target
from devwidget.gpus.kernels import GPU_FORMS, GUARDS, LACKING, no_kernel, without_kernel_for
from devwidget.gpus.labels import CPU, CPU_DEVICE, DEVICES, LABELS, META, META_DEVICE, TEMPORARY, label_new, storage_id
from devwidget.gpus.parts import PARTS
from devwidget.gpus.rules import BY_NAME, rule_by_table
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import (
    DisableTorchFunction,
    OpOverload,
    TensorBase,
    custom_operators,
    graph_task,
    has_kernel,
    storage_holders,
)

_Tensor = torch.Tensor
UNSEEN = -9
NUMBERS = (bool, int, float, complex)
"""A tensor that C++ has made of one comes down to a mode as the number, which not every operator takes."""
WANTS_TENSOR = "Expected a value of type 'Tensor'"


def run_operator(call: Call) -> Any:
    """The common path: all tensors on one device, or a rule that says where a mixture runs."""
    target = call.target = find_target(call)
    schema = call.schema
    if target == META and simulation.compute:
        return rules.run_beside_meta(call)
    if schema.has_generator:
        kernels.check_generator(call.kwargs.get("generator"), target)
    if schema.guard is not None:
        with DisableTorchFunction():  # the modes of a recording are active in backward
            schema.guard(call)
    try:
        result = simulation.values.call_operator(call.func, call.args, call.kwargs)
    except RuntimeError as error:
        if WANTS_TENSOR in str(error):
            return run_operator(Call(schema, call.func, _wrap_numbers(schema, call.args), call.kwargs))
        if target == CPU:
            raise
        result = kernels.run_substitute(call, error)
    if call.is_mixed:
        _adopt_temporaries(call)
    if target == CPU:
        return result
    if schema.fresh == ONE:
        label_new(result, target)
    elif schema.fresh != NOTHING:
        _label_results(result, target)
    asked = key_threads.place.asked
    if asked is not None and asked[0] is call.args and call.is_on_gpu() and not call.is_mixed and not call.kwargs:
        asked[1] = DEVICES[target]
    return result


def _wrap_numbers(schema: OpSchema, args: tuple[Any, ...]) -> tuple[Any, ...]:
    flags = (*schema.flags, *(NOTHING,) * len(args))
    with hide_from_modes():
        return tuple(
            torch.tensor(value) if flag == ONE and isinstance(value, NUMBERS) else value
            for flag, value in zip(flags, args, strict=False)
        )


def _run_without_storage(call: Call) -> Any:
    """A view of a sparse tensor, or a change of it: the result has new parts, where the old ones are."""
    args = _wrap_numbers(call.schema, call.args)
    label = labels.label_of(args[0])
    return _label_results(simulation.values.call_operator(call.func, args, call.kwargs), label)


def find_target(call: Call) -> Any:
    """The label under which an operator runs, or one for each tensor of a list.

    This is the hot path of the whole simulation: a loop that reads labels while they are equal, and leaves every other
    call to `resolve_mixture`.
    """
    target, get, schema = UNSEEN, LABELS.get, call.schema
    try:
        for flag, value in zip(schema.flags, call.args):  # noqa: B905  # to say strict=False costs as much as a turn of the loop
            if flag == NOTHING or value is None:
                continue
            for tensor in (value,) if flag == ONE else value:
                # A Python number may stand in the place of a tensor, and None in a list.
                if type(tensor) is not _Tensor and not isinstance(tensor, _Tensor):
                    continue
                label = get(storage_id(tensor), CPU)
                if target == UNSEEN:
                    target = label
                elif label != target:
                    return rules.resolve_mixture(call)
    except NotImplementedError:  # a tensor without storage, such as a sparse one
        return rules.resolve_mixture(call)
    if target == TEMPORARY or (call.kwargs and not schema.tensors.isdisjoint(call.kwargs)):
        return rules.resolve_mixture(call)
    if target == UNSEEN:
        return CPU
    return target


def _adopt_temporaries(call: Call) -> None:
    for name in call.schema.written:
        value = call[name]
        for at, tensor in enumerate(value if isinstance(value, (list, tuple)) else (value,)):
            # A sparse tensor that was written to consists of new parts, which nobody has labelled.
            if isinstance(tensor, torch.Tensor) and (tensor.layout != torch.strided or labels.label_of(tensor) == TEMPORARY):
                labels.put_label(tensor, _label_at(call.target, at))


def _label_at(target: Target, place: int) -> int:
    return target[place] if isinstance(target, tuple) else target


def _label_results(result: Any, target: Target) -> Any:
    """Label every tensor of a nested result, which is returned; `target` is one label or one for each."""
    if isinstance(result, torch.Tensor):
        if target != CPU:
            label_new(result, _label_at(target, 0))
    elif isinstance(result, (list, tuple)):
        for at, part in enumerate(result):
            _label_results(part, _label_at(target, at))
    return result


_Holders = tuple[int, int]
"""How many in C++ and in Python hold a tensor."""


def _add_gradients(call: Call) -> Any:
    """`aten::add.Tensor`, whose result is laid out as autograd's engine leaves a sum of gradients.

    The engine adds the gradients that meet at a node in place if nothing else holds the first one or its storage (`accumulate`
    in `input_buffer.cpp`). A label holds the storage, so that here a new tensor is made: of the same numbers, but a dimension
    of size one may get another stride than the first gradient has, and kernels choose their way by strides.
    """
    # Before the operator runs: its own calls hold the tensor too.
    is_alone = graph_task() >= 0 and not torch.is_grad_enabled() and _is_alone(call.args)
    result = run_operator(call)
    first = call.args[0]
    if not is_alone or not call.is_on_gpu() or not _is_laid_out_otherwise(first, result):
        return result
    with hide_from_modes():
        strided = torch.ops.aten.new_empty_strided.default(result, result.shape, first.stride()).copy_(result)
    return _label_results(strided, call.target)


def _is_alone(args: tuple[Any, ...]) -> bool:
    """Whether the engine would add in place without the label: it alone holds the first tensor, and its storage."""
    if type(args[0]) is not torch.Tensor or _count_holders(args) != _holders_of_lone():
        return False
    with DisableTorchFunction():  # the modes of a recording are active in backward
        if args[0].layout is not torch.strided:
            return False
        return bool(storage_holders(args[0].untyped_storage()._cdata) == 2)  # the tensor, and Python


def _count_holders(args: tuple[Any, ...]) -> _Holders:
    return args[0]._use_count(), sys.getrefcount(args[0])


# The counts differ between versions of Python and of torch, so they are measured and not written down.
@functools.cache
def _holders_of_lone() -> _Holders:
    """As many as hold the first tensor of a sum that the engine computes in place, on its way through a mode."""
    with DisableTorchFunction(), above_autograd(), without_any_dispatch_mode(), torch.enable_grad(), _Probe() as probe:
        leaf = torch.ones(1, requires_grad=True)
        met = leaf * 1
        torch.autograd.grad([met * 2, met * 3], leaf, [torch.ones(1), torch.ones(1)])
    holders: _Holders = probe.holders
    return holders


class _Probe(DispatchMode):
    holders: _Holders = (0, 0)

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.aten.add_.Tensor:
            self.holders = _count_holders(args)
        return redispatch(func, args, kwargs)


def _is_laid_out_otherwise(first: torch.Tensor, result: torch.Tensor) -> bool:
    with DisableTorchFunction():
        if result.layout is not torch.strided or first.stride() == result.stride():
            return False
        is_alike = first.shape == result.shape and first.dtype == result.dtype
        return is_alike and torch.ops.aten.is_non_overlapping_and_dense.default(first)


LARGE = 1 << 20
"""Elements."""


def _run_factory(call: Call) -> Any:
    args, kwargs = call.args, call.kwargs
    label = find_asked_label(kwargs)
    # `at::tensor` in C++ writes numbers behind the modes' back into what it made on the CPU.
    is_real = label is None and kwargs.get("device") == CPU_DEVICE
    if label is None:
        # C++ code that names the CPU copied that from a tensor; if it names nothing it means the CPU.
        label = CPU if kwargs.get("device") is None else TEMPORARY
    _check_options(kwargs, label)
    if label >= 0 and simulation.compute and args and isinstance(args[0], (list, tuple)):
        _ask_for_room(math.prod(args[0]), kwargs.get("dtype"), label)
    if is_real:
        result = call.func(*args, **kwargs)
    else:
        result = simulation.values.call_factory(call.func, args, _real_kwargs(kwargs), label == META)
    return _label_result(result, label, kwargs)


def _run_like(call: Call) -> Any:
    call = call.with_named_device()
    label = find_asked_label(call.kwargs)
    if label is None:
        label = find_target(call)
    _check_options(call.kwargs, label)
    result = simulation.values.call_factory(call.func, call.args, _real_kwargs(call.kwargs), label == META)
    return _label_result(result, label, call.kwargs)


def _check_options(kwargs: dict[str, Any], label: int) -> None:
    if label >= 0 and kwargs.get("pin_memory"):
        raise RuntimeError("Only dense CPU tensors can be pinned")  # source: `empty_cuda` in `EmptyTensor.cpp`
    kernels.check_generator(kwargs.get("generator"), label)


def _run_move(call: Call) -> Any:
    """`_to_copy`: a copy on the device that is named, or only a change of dtype where it is."""
    given, kwargs = call.args[0], _real_kwargs(call.kwargs)
    kwargs.pop("non_blocking", None)
    # A number that C++ wraps in a tensor comes down as a number, and goes where its partner is.
    source = labels.label_of(given) if isinstance(given, torch.Tensor) else TEMPORARY
    label = find_asked_label(call.kwargs)
    if label is None:
        label = source
    if not simulation.compute and META in (source, label):
        if label != META:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        given = simulation.values.strip_values(given)
        return _label_result(call.func(given, *call.args[1:], **kwargs, device=META_DEVICE), label, {})
    if label >= 0 and simulation.compute and labels.is_plain(given) and source != label:
        _ask_for_room(given.numel(), kwargs.get("dtype") or given.dtype, label)
    result = simulation.values.call_operator(call.func, call.args, kwargs)
    return _label_result(result, label, {})


def _run_resize(call: Call) -> Any:
    given, *rest = call.args
    if rest and isinstance(rest[0], torch.UntypedStorage):
        own, other = labels.label_of(given), labels.LABELS.get(rest[0]._cdata, CPU)
        if max(own, other) >= 0 and own != other and own != TEMPORARY:
            raise errors.other_memory(labels.name_of(own), labels.name_of(other))
    simulation.values.forget_values(given)
    result = simulation.values.call_operator(call.func, call.args, call.kwargs)
    with DisableTorchFunction():
        labels.measure_storage(result.untyped_storage())
    return result


def find_asked_label(kwargs: dict[str, Any]) -> int | None:
    """The label of the device that the *user* named; None if it was filled in by torch's own C++ code.

    Python's bindings always pass `pin_memory`, and so do the moves in this package, except moves of subclasses; C++ code
    that creates a tensor like another one does not, and what it read from that one is the real device.
    """
    device = kwargs.get("device")
    if device is None:
        return None
    if device.type == "cuda":
        return machine.ordinal_of(device)
    is_meant = "pin_memory" in kwargs or labels.inside.moved_subclasses > 0
    if device.type == "cpu":
        return CPU if is_meant else None
    # Without values the real device is meta, and C++ copies that.
    if simulation.compute or is_meant:
        return META
    return None


def _ask_for_room(count: int, dtype: torch.dtype | None, label: int) -> None:
    """Refuse a tensor that is too large for a GPU before the CPU has to find room for it."""
    if count > LARGE:
        account, requested = simulation.ledger.account_of(label), count * (dtype or torch.get_default_dtype()).itemsize
        if account.held + requested > account.limit - account.context and not account.is_endless:
            labels.take_bytes(label, requested)  # which tells the listeners, and raises


def _real_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    kwargs = dict(kwargs)
    device = kwargs.get("device")
    if not simulation.compute:
        kwargs.pop("device", None)
    elif device is not None and device.type == "cuda":
        kwargs["device"] = CPU_DEVICE
    kwargs.pop("pin_memory", None)
    return kwargs


def _label_result(result: Any, label: int, kwargs: dict[str, Any]) -> Any:
    if label >= 0 or label == TEMPORARY or (label == META and not simulation.compute):
        _label_results(result, label)
    elif kwargs.get("pin_memory") and isinstance(result, torch.Tensor):
        labels.mark_pinned(result)
    return result


def schema_of(func: OpOverload) -> OpSchema:
    """Read the schema of an operator and choose its rule."""
    schema = OpSchema(func)
    if func.namespace == "aten" and _is_composite("aten::" + schema.name):
        schema.take_apart, schema.passive, schema.resolve = _find_parts, False, rule_by_table(schema)
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


SPECIAL: dict[str, Special] = {
    "_to_copy": _run_move,
    "to.device": _run_move,
    # Under a `Tensor.pin_memory` that is torch's own: the thread of a `DataLoader` pins batches while another may import a
    # part of torch, which puts all patches aside.
    "_pin_memory": lambda call: labels.pin_copy(call["self"]),
    "resize_": _run_resize,
    "set_.source_Storage": _run_resize,
    "set_.source_Storage_storage_offset": _run_resize,
    "add.Tensor": _add_gradients,
}


def _choose_special(schema: OpSchema) -> Special | None:
    if schema.name in SPECIAL:
        return SPECIAL[schema.name]
    if schema.name in GPU_FORMS:
        return _run_instead
    if not schema.has_device:
        return None
    return _run_like if any(schema.flags) else _run_factory


def _run_instead(call: Call) -> Any:
    call.target = find_target(call)
    if not call.is_on_gpu() or not simulation.compute:
        return run_operator(call)
    result = GPU_FORMS[call.schema.name](*call.args, **call.kwargs)
    if result is None:
        return run_operator(call)
    return _label_results(result, call.target)


def run_foreign(call: Call) -> Any:
    """An operator of another library: if it is written in Python, its factories reach no mode, so it must see the CPU."""
    if call.func.namespace == "quantized" and call.schema.name.partition("::")[2] not in QUANTIZED_ON_GPUS:
        _refuse_on_gpus(call)
    kernels = _kernels_of(call.func)
    if kernels and simulation.compute and find_target(call) >= 0:
        if "cuda" not in kernels:
            raise errors.no_kernel(call.func._schema.name)
        call.func = kernels["cuda"]
    if simulation.compute and any(map(_is_gpu, call.args)):  # before torch 2.9 FSDP2 tells one where to make a tensor
        call.args = tuple(labels.CPU_DEVICE if _is_gpu(each) else each for each in call.args)
    return run_on_cpu(call)


def _is_gpu(given: Any) -> bool:
    return isinstance(given, torch.device) and given.type == "cuda"


def run_on_cpu(call: Call) -> Any:
    """Run an operator whose code, where it is Python, is to see the real devices."""
    with labels.seeing_real_devices():
        return run_operator(call)


QUANTIZED_LAYERS = ("quantized_lstm", "quantized_gru")
"""Of `aten`, but not in its list. Source: `RNN.cpp`."""
QUANTIZED_ON_GPUS = frozenset(("embedding_bag_byte_rowwise_offsets", "embedding_bag_4bit_rowwise_offsets"))
"""Of torch's operators for quantized modules. Source: `quantized/cuda/EmbeddingBag.cu`."""


def _refuse_on_gpus(call: Call) -> None:
    """They have kernels for the CPU alone: for ordinary tensors, or for quantized ones."""
    name = call.func._schema.name
    for backend in ("CPU", "QuantizedCPU"):
        if has_kernel(name, backend) and find_target(call) >= 0:
            raise errors.no_kernel(name, backend.replace("CPU", "CUDA"))


def _kernels_of(func: OpOverload) -> Any:
    """The functions of an operator of `torch.library.custom_op` by device, if there is not one for all devices."""
    operator = custom_operators.get(func._schema.name)
    kernels = {} if operator is None else operator._backend_fns
    return {} if None in kernels else kernels


def _is_composite(name: str) -> bool:
    """Composites only arrive here in inference mode, where nothing above has taken them apart."""
    # Some operators have a composite form and a kernel of their own, which rounds differently (silu_backward).
    return has_kernel(name, "CompositeImplicitAutograd") and not has_kernel(name, "CPU")


def _find_parts(call: Call) -> Callable[..., Any] | None:
    """What runs the parts of a composite; None for nested tensors, which have kernels of their own."""
    is_nested = any(tensor.is_nested for tensor in labels.list_tensors(call.args))
    return None if is_nested else call.func.decompose


_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
STRIDED = torch.strided
layout_of: Callable[[torch.Tensor], torch.layout] = TensorBase.layout.__get__
"""Read without `__torch_function__`."""
SCHEMAS: dict[int, tuple[OpSchema, OpOverload]] = {}
"""By the ids of the operators, which are kept in the values: their hash would be a call of Python code."""


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
    if isinstance(value, torch.Tensor) and layout_of(value) is STRIDED:
        return TEMPORARY
    return None


class VirtualMode(DispatchMode):
    """One per thread; all of them share the labels."""

    def switch_below(self, on: bool) -> None:
        """Switch off, or on again, what the mode has entered besides itself."""

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
                    return _run_without_storage(Call(schema, func, args, kwargs))
                asked = key_threads.place.asked
                if asked is not None and asked[0] is args and label >= 0:
                    asked[1] = DEVICES[label]  # a view is where its base is
            return redispatch(func, args, kwargs)
        call = Call(schema, func, args, kwargs)
        if schema.take_apart is not None:
            run_parts = schema.take_apart(call)
            if run_parts is not None:
                # A mode is off while it handles an operator: entered again, it sees the parts.
                with self:
                    return run_parts(*args, **kwargs)
        if schema.special is not None:
            return schema.special(call)
        return run_operator(call)


class _AtRest(DispatchMode):
    """The mode of a thread that has outlived its simulation; `kind` is what it was, and becomes again in one of that kind."""

    kind: type[VirtualMode]
    __torch_dispatch__ = EndedDispatchMode.__torch_dispatch__


def deactivate_mode(mode: Any) -> None:
    """Have the mode of a thread that outlives the simulation do nothing."""
    if not isinstance(mode, VirtualMode):
        return  # it has been at rest since a simulation before that one
    mode.switch_below(False)
    mode.kind = type(mode)  # type: ignore[attr-defined]
    # Only its own thread could take the mode off its stack, so here it becomes one that does nothing.
    mode.__class__ = _AtRest  # type: ignore[assignment]


def reactivate_mode(mode: Any) -> None:
    """A simulation has begun: threads of an earlier one belong to it, unless only one of both has values."""
    if isinstance(mode, _AtRest) and mode.kind is kind_of_mode():
        mode.__class__ = mode.kind  # type: ignore[assignment]
        mode.switch_below(True)  # type: ignore[attr-defined]


def kind_of_mode() -> type[VirtualMode]:
    """The class of the modes of the running simulation; each thread has one of them."""
    return simulation.values.mode or VirtualMode
