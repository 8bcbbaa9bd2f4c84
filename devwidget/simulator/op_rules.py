"""Which rule each operator follows on CUDA."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from devwidget.simulator import creation, follow, guards, labels, mixing, native_rules, own_rules
from devwidget.simulator.plans import Plan

BY_NAME: dict[str, Any] = {
    "copy_": mixing.by_destination,
    "_copy_from": mixing.by_destination,
    "_copy_from_and_resize": mixing.by_destination,
    "copy": mixing.by_destination,
    "set_.source_Tensor": mixing.by_destination,
    "resize_as_": mixing.by_destination,
    "expand_as": mixing.by_destination,
    "is_same_size": mixing.by_destination,
    "slice_scatter": mixing.by_destination,
    "select_scatter": mixing.by_destination,
    "diagonal_scatter": mixing.by_destination,
    "as_strided_scatter": mixing.by_destination,
    "_has_same_storage_numel": mixing.by_destination,
    "_has_compatible_shallow_copy_type": mixing.by_destination,
    "_pack_padded_sequence": own_rules.by_packing,
    "index.Tensor": own_rules.by_index,
    "_unsafe_index.Tensor": own_rules.by_index,
    "index_put": own_rules.by_index,
    "index_put_": own_rules.by_index,
    "_index_put_impl_": own_rules.by_index,
    "_unsafe_index_put": own_rules.by_index,
    "masked_fill.Scalar": own_rules.by_mask,
    "masked_fill_.Scalar": own_rules.by_mask,
    "masked_fill.Tensor": own_rules.by_mask,
    "masked_fill_.Tensor": own_rules.by_mask,
    "where.self": own_rules.by_where,
    "where.self_out": own_rules.by_where,
    "fill_.Tensor": own_rules.by_filling,
    "fill.Tensor": own_rules.by_filling,
    "embedding": own_rules.by_embedding,
    "convolution": own_rules.by_convolution,
    "convolution_overrideable": own_rules.by_convolution,
    "bucketize.Tensor": own_rules.by_search,
    "searchsorted.Tensor": own_rules.by_search,
    "grid_sampler_2d": own_rules.by_grid,
    "grid_sampler_3d": own_rules.by_grid,
    "index_fill.int_Tensor": mixing.by_iterator,
    "index_fill_.int_Tensor": mixing.by_iterator,
    "native_batch_norm": mixing.under_name("wrapper_CUDA__cudnn_batch_norm"),
    "_native_batch_norm_legit": mixing.under_name("wrapper_CUDA__cudnn_batch_norm"),
    "_batch_norm_with_update": mixing.under_name("wrapper_CUDA__cudnn_batch_norm"),
    "mv": mixing.under_name("wrapper_CUDA_addmv_"),
    "stack": mixing.under_name("wrapper_CUDA_cat"),
    "block_diag": mixing.by_equality("torch.block_diag: input tensors must all be on the same device."),
    "_ctc_loss": mixing.by_destination,
    "_ctc_loss.Tensor": mixing.by_destination,
    "_use_cudnn_ctc_loss": mixing.by_destination,
    "_use_cudnn_ctc_loss.Tensor": mixing.by_destination,
    "_ctc_loss_backward": mixing.by_destination,
    "_ctc_loss_backward.Tensor": mixing.by_destination,
    "addr_": mixing.by_iterator,
}
GUARDS: dict[str, Any] = {
    "_pack_padded_sequence": guards.lengths_on_cpu,
    "convolution": guards.same_convolution_types,
    "native_layer_norm": guards.same_norm_types,
    "native_group_norm": guards.same_norm_types,
    "nll_loss_forward": guards.class_indices,
    **dict.fromkeys(guards.INTEGER_KERNELS, guards.no_integers),
}


def plan_for(func: OpOverload) -> Plan:
    """Read the schema of an operator and choose its rule."""
    plan = Plan(func)
    if func.namespace == "aten" and _is_composite(func):
        plan.special, plan.passive, plan.resolve = decompose, False, _by_table(plan)
        return plan
    plan.special = _special(plan) if func.namespace == "aten" else run_foreign
    plan.resolve = BY_NAME.get(plan.name) or _by_table(plan)
    plan.guard = GUARDS.get(plan.name)
    if plan.name in native_rules.CPU_ONLY:
        plan.guard = guards.no_kernel
    if plan.special is not None or plan.guard is not None:
        plan.passive = False
    return plan


def _special(plan: Plan) -> Any:
    if plan.name in ("_to_copy", "to.device"):
        return creation.run_move
    if plan.name in ("resize_", "set_.source_Storage_storage_offset"):
        return creation.run_resize
    if plan.has_device:
        return creation.run_like if any(plan.flags) else creation.run_factory
    return None


def run_foreign(plan: Plan, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator of another library: if it is written in Python, its factories reach no mode, so it must see the CPU."""
    labels.inside.depth += 1
    try:
        return follow.run(plan, func, args, kwargs)
    finally:
        labels.inside.depth -= 1


def _by_table(plan: Plan) -> Any:
    if plan.name.startswith("_nested_"):  # the parts of a nested tensor: sizes may be elsewhere
        return mixing.by_destination
    if plan.name.startswith("_foreach_") or plan.name.startswith(("_fused_", "_amp_foreach")):
        return mixing.by_position
    if plan.name in native_rules.UNCHECKED or plan.name in native_rules.COMPOSITE:
        return mixing.by_iterator
    return mixing.by_wrapper


def _is_composite(func: OpOverload) -> bool:
    """Composites only arrive here in inference mode, where nothing above has taken them apart."""
    name = func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    # Some operators have a composite form and a kernel of their own, which rounds differently (silu_backward).
    return has_kernel(name, "CompositeImplicitAutograd") and not has_kernel(name, "CPU")


def decompose(plan: Plan, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Marks composites; the mode takes them apart with itself active."""
    raise AssertionError("the mode handles composites itself")
