"""Where an operator with tensors on several devices runs, or how it fails: one rule for each habit of a GPU's kernels, and
which operators follow it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from devwidget.capture.patching.operator_key import above_autograd
from devwidget.gpus import errors, labels, native_rules
from devwidget.gpus.call import Call, Operand, OpSchema, Rule, Target
from devwidget.gpus.labels import CPU, META, TEMPORARY, name_of
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import DisableTorchFunction, select_convolution
from devwidget.records.errors import message


def resolve_mixture(call: Call) -> Target:
    """The label under which a mixed call runs; raises in CUDA's words if it cannot run."""
    call.is_mixed = True
    resolve = call.schema.resolve
    with DisableTorchFunction():
        distinct = {operand.label for operand in call.operands}
        if len(distinct) > 1:
            distinct.discard(TEMPORARY)
        if len(distinct) < 2:
            return distinct.pop() if distinct else CPU
        on_meta = any(operand.tensor.is_meta for operand in call.operands)
        if on_meta and simulation.compute and resolve is not by_destination:
            return META
        assert resolve is not None
        return resolve(call)


def run_beside_meta(call: Call) -> Any:
    """GPU tensors with meta tensors: torch runs its meta kernel, which checks some operators and not others."""
    gpu = _first_gpu(call.operands)
    try:
        result = call.func(*call.args, **call.kwargs)
    except RuntimeError as error:
        raise type(error)(message(error).replace("device cpu", f"device {name_of(gpu)}")) from None
    for tensor in labels.list_tensors(result):
        if not tensor.is_meta:
            labels.put_label(tensor, gpu)
    return result


def _first_gpu(operands: Iterable[Operand]) -> int:
    return next((operand.label for operand in operands if operand.label >= 0), CPU)


def by_iterator(call: Call, at_home: str = "") -> int:
    """Element-wise kernels: one CPU scalar is welcome, except for the arguments `at_home`.

    Source: `TensorIterator.cpp`, compute_types.
    """
    found, scalars = call.settled(), 0
    common = _first_gpu(found)
    for operand in found:
        if operand.is_cpu_scalar and not operand.is_output:
            scalars += 1
            if scalars > 1:
                raise RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")
        else:
            _expect_on(common, operand)
    for operand in found:
        if operand.name in at_home.split():
            _expect_on(common, operand)
    return _keep_gradients_home(found, common)


def _expect_on(common: int, operand: Operand) -> None:
    if operand.label != common:
        raise errors.two_devices(name_of(common), operand.device)


def by_wrapper(call: Call, method: str = "") -> int:
    """Kernels with a generated check: no exception for scalars. Messages name `method`, if the operator runs as another one.

    Source: `c10::impl::check_and_update_common_device`.
    """
    found = call.settled()
    common = found[0]
    for operand in found:
        if operand.label != common.label:
            raise errors.checked_argument(operand.name, operand.device, common.device, method or call.schema.method)
    return common.label


def by_destination(call: Call) -> int:
    """Copies and the like: the first tensor says where, the others may be anywhere."""
    return call.settled()[0].label


def by_position(call: Call) -> tuple[int, ...]:
    """Lists of tensors: the first of each list together, then the second of each, and so on."""
    given = [value for value in call.args if isinstance(value, (list, tuple))]
    lists = [value for value in given if isinstance(next(iter(value), None), torch.Tensor)]
    return tuple(_place_row(row) for row in zip(*lists, strict=False))


def _place_row(row: Iterable[torch.Tensor]) -> int:
    found = [(tensor, labels.label_of(tensor)) for tensor in row]
    settled = [(tensor, label) for tensor, label in found if label != TEMPORARY]
    common = next((label for _, label in settled if label >= 0), CPU)
    for at, (tensor, label) in enumerate(settled):
        is_welcome = at > 0 and label == CPU and tensor.dim() == 0
        if label != common and not is_welcome:
            raise errors.two_devices(name_of(common), name_of(label))
    return common


def by_packing(call: Call) -> tuple[int, int]:
    """Packed data stay where they are, batch sizes are on the CPU."""
    return labels.label_of(call["input"]), CPU


def by_index(call: Call) -> int:
    """What is read is read with indices from there or from the CPU; to write, they may be anywhere.

    Source: `index` and `make_info` in `TensorAdvancedIndexing.cpp`, which brings them along.
    """
    found = call.settled()
    own = call.label_of("self")
    if own is None or own == TEMPORARY:
        own = _first_gpu(found)
    indices = [operand for operand in found if operand.name == "indices"]
    values = [operand for operand in found if operand.name == "values"]
    if "values" not in call.schema.names:
        _check_indices(indices, own)
    for value in values:
        if value.label != own and value.tensor.dim() > 0:
            raise errors.two_devices(*map(name_of, sorted((own, value.label), reverse=True)))
    return _keep_gradients_home(values, own)


def _check_indices(indices: list[Operand], own: int) -> None:
    for index in indices:
        if index.label not in (CPU, own):
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({name_of(own)})")


def by_index_fill(call: Call) -> int:
    """Index and tensor lie together; the value is read on the host. Source: `index_fill_` in `TensorAdvancedIndexing.cpp`."""
    own, index = labels.label_of(call["self"]), labels.label_of(call["index"])
    if index != own:
        raise errors.two_devices(*map(name_of, sorted((own, index), reverse=True)))
    return _keep_gradients_home(call.settled(), own)


def by_no_kernel(call: Call) -> int:
    """Operators that GPUs do not have: one tensor there is enough."""
    raise errors.no_kernel("aten::" + call.schema.name)


def by_mask(call: Call) -> int:
    """The value may be a CPU scalar, the mask may not. Source: `masked_fill__cuda` in `Indexing.cu`."""
    mask, value = labels.label_of(call["mask"]), call.label_of("value")
    own = labels.label_of(call["self"])
    if own == TEMPORARY:
        own = mask
    if mask not in (own, TEMPORARY):
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {name_of(mask)} and self on {name_of(own)}"
        )
    if own == CPU and value is not None and value >= 0:
        raise errors.two_devices(name_of(value), name_of(own))
    return _keep_gradients_home(call.settled(), own)


def by_where(call: Call) -> int:
    """Every zero-dimensional tensor is brought along. Source: `where_self_out` in `TensorCompare.cpp`."""
    found = call.settled()
    common = _first_gpu(found)
    for operand in found:
        if operand.tensor.dim() > 0 or operand.is_output:
            _expect_on(common, operand)
    return _keep_gradients_home(found, common)


def by_filling(call: Call) -> int:
    """The value is read on the host wherever it is. Source: `Fill.cpp`."""
    own = labels.label_of(call["self"])
    if own == TEMPORARY:
        own = by_destination(call)
    return _keep_gradients_home(call.settled(), own)


def by_drawing(call: Call) -> int:
    """Probabilities are brought to a GPU. Source: `bernoulli_tensor_cuda_kernel` in `Distributions.cu`."""
    own = labels.label_of(call["self"])
    return own if own >= 0 else by_iterator(call)


def by_convolution(call: Call) -> int:
    """Types are compared before devices. Source: `check_input_same_type_as_parameters` in `Convolution.cpp`."""
    given = call["input"]
    label = labels.label_of(given)
    for name in ("weight", "bias"):
        other = call.label_of(name)
        if other is not None and other != TEMPORARY and (other >= 0) != (label >= 0):
            more = ""
            if name == "weight" and label == CPU and "Mkldnn" in str(select_convolution(*call.args)):
                more = " or input should be a MKLDNN tensor and weight is a dense tensor"
            raise convolution_types_error(given, call[name], name, more)
    return by_wrapper(call, "_cudnn_convolution")


def convolution_types_error(given: Any, other: Any, name: str, more: str = "") -> RuntimeError:
    """The message of a convolution whose tensors differ in type; oneDNN says more."""
    left, right = (errors.type_text(tensor.dtype, labels.label_of(tensor) >= 0) for tensor in (given, other))
    return RuntimeError(f"Input type ({left}) and {name} type ({right}) should be the same{more}")


def by_refusal(call: Call, text: str, after: Rule | None = None) -> Target:
    """Operators that take no mixture at all, and say so in words of their own, after another rule.

    In `text`, `{first}` is the device of the first tensor, and `{other}` that of the first that is elsewhere.
    """
    if after is not None:
        after(call)
    found = call.settled()
    other = next(operand for operand in found if operand.label != found[0].label)
    raise RuntimeError(text.format(first=found[0].device, other=other.device))


MARK = "devwidget: gradient stays on"


def _keep_gradients_home(operands: Iterable[Operand], common: int) -> int:
    """Have the gradients of CPU scalars that met the GPU `common`, which is returned, brought back to them, as the engine does.

    Source: `validate_outputs` in `engine.cpp`, which moves zero-dimensional gradients.
    """
    for operand in operands:
        if operand.label not in (common, TEMPORARY) and operand.tensor.requires_grad and torch.is_grad_enabled():
            _bring_home(operand.tensor, operand.label)
    return common


def _bring_home(tensor: torch.Tensor, label: int) -> None:
    # A mode runs below it; the edge of a leaf can only be had above.
    with above_autograd():
        edge = torch.autograd.graph.get_gradient_edge(tensor)
    node: Any = edge.node
    number = edge.output_nr
    key = f"{MARK} {number}"  # on the node, because its tensors are new objects each time: one hook is enough
    if node.metadata.get(key) == label:
        return
    node.metadata[key] = label

    def move_gradient(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        gradient = gradients[number]
        if gradient is None or labels.label_of(gradient) in (label, TEMPORARY):
            return gradients
        return (*gradients[:number], labels.move_tensor(gradient, label), *gradients[number + 1 :])

    node.register_prehook(move_gradient)


# Which operators follow which rule; what is not here follows `rule_by_table`.

REFUSED = {
    "embedding": str(errors.checked_argument("index", "{other}", "{first}", "_index_select")),
    "mv": str(errors.checked_argument("mat", "{first}", "{other}", "addmv_")),
    "set_.source_Tensor": str(errors.other_memory("{first}", "{other}")),
}
"""Source: `Embedding.cpp`, `Blas.cpp`, `Resize.h`."""
RUN_AS = {
    "complex": "out_complex_out",
    "linalg_lstsq": "out_linalg_lstsq_out",
    "masked_scatter": "_masked_scatter_",
    "polar": "out_polar_out",
    "put": "_put_",
    "stack": "cat",
}
"""Operator -> the method that checks its devices on a GPU."""
AT_HOME = {
    "addcdiv addcdiv_ addcdiv.out": "self tensor1 tensor2",
    "addcmul addcmul_ addcmul.out": "self tensor1",
    "binary_cross_entropy": "self target weight",
    "binary_cross_entropy_with_logits": "target",
    "logical_and logical_or logical_xor soft_margin_loss": "self",
    "smooth_l1_loss": "self target",
}
"""The arguments that may be no CPU scalars. Source: `PointwiseOpsKernel.cu`, `BinaryOps.cpp`, `Loss.cpp`; seen on an H100."""
BY_NAME: dict[str, Rule] = {
    **{name: partial(by_refusal, text=text) for name, text in REFUSED.items()},
    **{name: partial(by_wrapper, method=method) for name, method in RUN_AS.items()},
    "_pack_padded_sequence": by_packing,
    "addr_": by_iterator,
    "bernoulli_.Tensor": by_drawing,
    "mse_loss": partial(by_refusal, text=str(errors.two_devices("{first}", "{other}")), after=by_iterator),
}
for _names, _at_home in AT_HOME.items():
    BY_NAME |= dict.fromkeys(_names.split(), partial(by_iterator, at_home=_at_home))
_FURTHER: dict[Rule, str] = {
    by_convolution: "convolution convolution_overrideable",
    by_destination: """
        copy_ _copy_from _copy_from_and_resize copy resize_as_ expand_as is_same_size slice_scatter select_scatter
        diagonal_scatter as_strided_scatter _has_same_storage_numel _has_compatible_shallow_copy_type _ctc_loss
        _ctc_loss.Tensor _use_cudnn_ctc_loss _use_cudnn_ctc_loss.Tensor _ctc_loss_backward _ctc_loss_backward.Tensor""",
    by_filling: "fill_.Tensor fill.Tensor",
    by_index: "index.Tensor _unsafe_index.Tensor index_put index_put_ _index_put_impl_ _unsafe_index_put",
    by_index_fill: "index_fill.int_Tensor index_fill_.int_Tensor index_fill.int_Scalar index_fill_.int_Scalar",
    by_mask: "masked_fill.Scalar masked_fill_.Scalar masked_fill.Tensor masked_fill_.Tensor",
    by_where: "where.self where.self_out",
}
for _rule, _names in _FURTHER.items():
    BY_NAME |= dict.fromkeys(_names.split(), _rule)


def rule_by_table(schema: OpSchema) -> Rule:
    """The rule of an operator that has none of its own, by torch's table of native functions."""
    # The parts of a nested tensor: sizes may be elsewhere.
    if schema.name.startswith("_nested_"):
        return by_destination
    if schema.name.startswith(("_foreach_", "_fused_")) and schema.name in native_rules.UNCHECKED:
        return by_position
    if schema.name in native_rules.UNCHECKED or schema.name in native_rules.COMPOSITE:
        return by_iterator
    return by_wrapper
