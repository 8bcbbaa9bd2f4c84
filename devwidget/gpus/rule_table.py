"""Which rule each operator follows on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devwidget.gpus import dtype_rules, guards, labels, native_rules, special_operators
from devwidget.gpus import errors as cuda_errors
from devwidget.gpus import kernels as gpu_kernels
from devwidget.gpus import operators as propagate
from devwidget.gpus import rules as placement_rules
from devwidget.gpus.op_schema import OpSchema
from devwidget.gpus.parts import PARTS
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import DisableTorchFunction, OpOverload, custom_operators, has_kernel

BY_NAME: dict[str, Any] = {
    **dict.fromkeys(
        """copy_ _copy_from _copy_from_and_resize copy resize_as_ expand_as is_same_size slice_scatter select_scatter
        diagonal_scatter as_strided_scatter _has_same_storage_numel _has_compatible_shallow_copy_type _ctc_loss
        _ctc_loss.Tensor _use_cudnn_ctc_loss _use_cudnn_ctc_loss.Tensor _ctc_loss_backward _ctc_loss_backward.Tensor""".split(),
        placement_rules.by_destination,
    ),
    "set_.source_Tensor": placement_rules.by_setting,
    **dict.fromkeys("addcmul addcmul_ addcmul.out".split(), placement_rules.by_multiplying),
    **dict.fromkeys("addcdiv addcdiv_ addcdiv.out".split(), placement_rules.by_dividing),
    "_pack_padded_sequence": placement_rules.by_packing,
    **dict.fromkeys(
        """index.Tensor _unsafe_index.Tensor index_put index_put_ _index_put_impl_ _unsafe_index_put""".split(),
        placement_rules.by_index,
    ),
    "bernoulli_.Tensor": placement_rules.by_drawing,
    **dict.fromkeys(
        """masked_fill.Scalar masked_fill_.Scalar masked_fill.Tensor masked_fill_.Tensor""".split(),
        placement_rules.by_mask,
    ),
    **dict.fromkeys("where.self where.self_out".split(), placement_rules.by_where),
    **dict.fromkeys("fill_.Tensor fill.Tensor".split(), placement_rules.by_filling),
    "embedding": placement_rules.by_embedding,
    **dict.fromkeys("convolution convolution_overrideable".split(), placement_rules.by_convolution),
    "addr_": placement_rules.by_iterator,
    **dict.fromkeys(
        "index_fill.int_Tensor index_fill_.int_Tensor index_fill.int_Scalar index_fill_.int_Scalar".split(),
        placement_rules.by_index_fill,
    ),
    **dict.fromkeys("_unsafe_masked_index _unsafe_masked_index_put_accumulate".split(), placement_rules.by_masked_index),
    **dict.fromkeys("logical_and logical_or logical_xor soft_margin_loss".split(), placement_rules.by_result_beside_self),
    "binary_cross_entropy_with_logits": placement_rules.by_logits,
    **dict.fromkeys("binary_cross_entropy mse_loss".split(), placement_rules.by_loss),
    "smooth_l1_loss": placement_rules.by_smooth_loss,
    "_trilinear": placement_rules.by_trilinear,
    "cholesky_solve": placement_rules.by_cholesky,
    "segment_reduce": placement_rules.by_segments,
    "native_batch_norm": placement_rules.by_batch_norm,
    **dict.fromkeys("_native_batch_norm_legit _batch_norm_with_update".split(), placement_rules.by_legit_batch_norm),
    "masked_scatter": placement_rules.by_wrapper_named("_masked_scatter_"),
    "put": placement_rules.by_wrapper_named("_put_"),
    "linalg_lstsq": placement_rules.by_wrapper_named("out_linalg_lstsq_out"),
    "mv": placement_rules.by_vector,
    "polar": placement_rules.by_wrapper_named("out_polar_out"),
    "complex": placement_rules.by_wrapper_named("out_complex_out"),
    "stack": placement_rules.by_wrapper_named("cat"),
    "block_diag": placement_rules.by_blocks,
}
GUARDS: dict[str, Any] = {
    "_pack_padded_sequence": guards.check_lengths,
    "convolution": guards.check_convolution_types,
    **dict.fromkeys(
        """native_batch_norm _native_batch_norm_legit _batch_norm_with_update""".split(), guards.check_batch_norm_types
    ),
    "native_layer_norm": guards.check_norm_types,
    "native_group_norm": guards.check_norm_types,
    "nll_loss_forward": guards.check_class_indices,
    **dict.fromkeys(("_int_mm", "_int_mm.out"), guards.check_integer_product),
    "linalg_lstsq": guards.check_least_squares,
    **dict.fromkeys(("_scaled_mm", "_scaled_mm.out"), guards.check_scaled_product),
    **dict.fromkeys(guards.NONDETERMINISTIC, guards.alert_nondeterministic),
    **dict.fromkeys(guards.INTEGER_KERNELS, guards.check_product),
}
LACKING: dict[str, frozenset[torch.dtype]] = {}
"""Operator, or one overload of it, -> the dtypes for which CUDA has no kernel."""
for _dtypes, _names in dtype_rules.LACKING.items():
    LACKING |= dict.fromkeys(_names.split(), frozenset(getattr(torch, dtype) for dtype in _dtypes.split()))


def schema_of(func: OpOverload) -> OpSchema:
    """Read the schema of an operator and choose its rule."""
    schema = OpSchema(func)
    if func.namespace == "aten" and _is_composite(func):
        schema.take_apart, schema.passive, schema.resolve = find_parts, False, _by_table(schema)
        return schema
    if func.namespace == "aten":
        schema.special = _choose_special(schema)
    else:
        schema.special = PARTS.special.get(func.namespace, run_foreign)
        schema.take_apart = PARTS.take_apart.get(func.namespace)
    schema.resolve = BY_NAME.get(schema.name) or _by_table(schema)
    schema.guard = GUARDS.get(schema.name)
    if schema.name in native_rules.CPU_ONLY or schema.base in QUANTIZED_LAYERS:
        schema.guard, schema.resolve = guards.no_kernel, placement_rules.by_no_kernel
    dtypes = LACKING.get(schema.base, frozenset()) | LACKING.get(schema.overload, frozenset())
    if dtypes and func.namespace == "aten":
        schema.guard = guards.without_kernel_for(dtypes, schema.guard)
    if schema.special is not None or schema.guard is not None:
        schema.passive = False
    return schema


def _choose_special(schema: OpSchema) -> Any:
    if schema.name in ("_to_copy", "to.device"):
        return special_operators.run_move
    if schema.name == "_pin_memory":
        return special_operators.run_pin
    if schema.name in ("resize_", "set_.source_Storage", "set_.source_Storage_storage_offset"):
        return special_operators.run_resize
    if schema.name == "add.Tensor":
        return special_operators.add_gradients
    if schema.name in gpu_kernels.GPU_FORMS:
        return run_instead
    if schema.written and gpu_kernels.DIVISIONS.match(schema.name):
        return divide_in_place
    if schema.has_device:
        return special_operators.run_like if any(schema.flags) else special_operators.run_factory
    return None


def run_instead(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator with a kernel for the CPU that GPUs do not have, for all that it is given or for some."""
    label, _ = propagate.find_target(schema, args, kwargs)
    result = gpu_kernels.GPU_FORMS[schema.name](*args, **kwargs) if label >= 0 and SimulationState.compute else None
    if result is None:
        return propagate.run_operator(schema, func, args, kwargs)
    propagate.label_results(result, label)
    return result


def divide_in_place(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A division that overwrites a tensor: at a zero the CPU would stop when a part is written."""
    target, _ = propagate.find_target(schema, args, kwargs)
    with DisableTorchFunction():  # the modes of a recording are active in backward
        if target >= 0 and SimulationState.compute and gpu_kernels.has_zero_divisor(schema, args, kwargs):
            return gpu_kernels.divide_by_zero(schema, func, args, kwargs)
    return propagate.run_operator(schema, func, args, kwargs)


def run_foreign(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator of another library: if it is written in Python, its factories reach no mode, so it must see the CPU.

    Raises:
        NotImplementedError: if it was written for other devices than GPUs.
    """
    if func.namespace == "quantized" and schema.name.partition("::")[2] not in QUANTIZED_ON_GPUS:
        _refuse_on_gpus(schema, func, args, kwargs)
    kernels = _kernels_of(func)
    if kernels and SimulationState.compute and propagate.find_target(schema, args, kwargs)[0] >= 0:
        if "cuda" not in kernels:
            raise cuda_errors.no_kernel(func._schema.name)
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
        return propagate.run_operator(schema, func, args, kwargs)
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
    if backend is not None and propagate.find_target(schema, args, kwargs)[0] >= 0:
        raise cuda_errors.no_kernel(name, backend)


def _kernels_of(func: OpOverload) -> Any:
    """The functions of an operator of `torch.library.custom_op` by device, if there is not one for all devices."""
    operator = custom_operators.get(func._schema.name)
    kernels = {} if operator is None else operator._backend_fns
    return {} if None in kernels else kernels


def _by_table(schema: OpSchema) -> Any:
    # The parts of a nested tensor: sizes may be elsewhere.
    if schema.name.startswith("_nested_"):
        return placement_rules.by_destination
    if schema.name.startswith(("_foreach_", "_fused_")) and schema.name in native_rules.UNCHECKED:
        return placement_rules.by_position
    if schema.name in native_rules.UNCHECKED or schema.name in native_rules.COMPOSITE:
        return placement_rules.by_iterator
    return placement_rules.by_wrapper


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
