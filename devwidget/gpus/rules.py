"""Where an operator with tensors on several devices runs, or how it fails: one rule for each habit of a GPU's kernels, and
which operators follow it.

A rule is given what is known of the operator from its schema, and the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from devwidget.capture.patching.operator_key import above_autograd
from devwidget.gpus import errors, labels, native_rules
from devwidget.gpus.labels import CPU, META, TEMPORARY, name_of
from devwidget.gpus.state import SimulationState
from devwidget.gpus.torch_internals import DisableTorchFunction, OpOverload, select_convolution
from devwidget.records.errors import message

NOTHING, ONE, SEVERAL = 0, 1, 2
Resolve = Callable[["OpSchema", tuple[Any, ...], dict[str, Any]], Any]
Guard = Callable[["OpSchema", tuple[Any, ...], dict[str, Any], int], None]
Special = Callable[["OpSchema", OpOverload, tuple[Any, ...], dict[str, Any]], Any]
TakeApart = Callable[["OpSchema", OpOverload, tuple[Any, ...], dict[str, Any]], Callable[..., Any] | None]


class OpSchema:
    """One operator.

    Attributes:
        name: "add.Tensor", without the overload if that is the default; `base` without any, also of "add_.Tensor".
        flags: for each positional argument NOTHING, ONE (a tensor) or SEVERAL (a list of tensors).
        names: the names of all arguments, `written` the places whose tensor is changed.
        fresh: whether the operator returns NOTHING new, ONE new tensor or SEVERAL.
        passive: labels need no care: a view, or an in-place operation on one tensor.
        views_first: passive, and the first argument is a tensor; a sparse one has no storage for results to share.
        take_apart: tells what runs an operator as others, each of which comes to the mode; None for one that does not.
        special: runs the operator instead of the common path.
        resolve: decides where an operator with tensors on several devices runs, or raises.
        guard: a further check for tensors on a GPU.
    """

    __slots__ = ("base", "flags", "fresh", "guard", "has_device", "has_generator", "keyword_tensors", "name", "names",
                 "passive", "resolve", "special", "take_apart", "views_first", "written")  # fmt: skip

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        self.name = schema.name.removeprefix("aten::") + (f".{schema.overload_name}" if schema.overload_name else "")
        self.base = self.name.partition(".")[0].removesuffix("_")
        positional = [argument for argument in schema.arguments if not argument.kwarg_only]
        self.flags = tuple(_tensor_flag(argument) for argument in positional)
        self.names = tuple(argument.name for argument in schema.arguments)
        self.written = tuple(
            argument.name for argument in schema.arguments if argument.alias_info is not None and argument.alias_info.is_write
        )
        # Any argument may come by keyword if something between the user and the mode passed it so.
        self.keyword_tensors = frozenset(argument.name for argument in schema.arguments if _tensor_flag(argument))
        self.has_generator = "generator" in self.names
        self.has_device = "device" in self.names
        self.fresh = _count_fresh(schema.returns)
        tensors = sum(map(bool, map(_tensor_flag, schema.arguments)))
        self.passive = tensors <= 1 and not self.fresh and SEVERAL not in self.flags and not self.has_generator
        self.views_first = self.passive and self.flags[:1] == (ONE,)
        self.take_apart: TakeApart | None = None
        self.special: Special | None = None
        self.resolve: Resolve | None = None
        self.guard: Guard | None = None

    def bind_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names."""
        return {**dict(zip(self.names, args, strict=False)), **kwargs}

    def device_by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with a device that was given by its place, and what comes behind it, as keywords."""
        place = self.names.index("device")
        return args[:place], {**dict(zip(self.names[place:], args[place:], strict=False)), **kwargs}

    @property
    def overload(self) -> str:
        """`add.Tensor`, also of "add_.Tensor" and "add.Tensor_out"; `abs.default` of "abs" and "abs.out"."""
        overload = self.name.partition(".")[2]
        return f"{self.base}.{'default' if overload in ('', 'out') else overload.removesuffix('_out')}"

    @property
    def method(self) -> str:
        """The C++ function named in messages, behind `wrapper_CUDA_`. Source: torchgen's register_dispatch_key.py."""
        base, _, overload = self.name.partition(".")
        if self.name in native_rules.STRUCTURED:
            return base + (f"_{overload}" if overload else "")
        return f"{overload}_{base}"


def _tensor_flag(argument: torch.Argument) -> int:
    text = str(argument.type)
    if "Tensor" not in text:
        return NOTHING
    return SEVERAL if text.startswith("List") or "[]" in text or "List[" in text else ONE


def _count_fresh(returns: list[torch.Argument]) -> int:
    new = [returned for returned in returns if returned.alias_info is None and _tensor_flag(returned)]
    if not new:
        return NOTHING
    return ONE if len(returns) == 1 and _tensor_flag(new[0]) == ONE else SEVERAL


class PlacedOperand(NamedTuple):
    """One tensor of a call; `is_output` if the operator writes to it."""

    name: str
    tensor: torch.Tensor
    label: int
    is_output: bool

    @property
    def is_cpu_scalar(self) -> bool:
        """Zero-dimensional and on the CPU: what many kernels read on the host."""
        return self.label == CPU and self.tensor.dim() == 0


# What the rules are given, and one rule after the other.


def resolve_mixture(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The label under which a mixed call runs.

    Raises:
        RuntimeError: in CUDA's words, if it cannot run.
    """
    with DisableTorchFunction():
        found = list(iterate_operands(schema, args, kwargs))
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


def iterate_operands(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[PlacedOperand]:
    """All tensors of a call, outputs included, in the order of the schema."""
    for place, name in enumerate(schema.names):
        value = args[place] if place < len(args) else kwargs.get(name)
        if name not in schema.keyword_tensors:
            continue
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield PlacedOperand(name, tensor, labels.label_of(tensor), name in schema.written)


def list_settled(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[PlacedOperand]:
    """The operands that have a device of their own."""
    return [operand for operand in iterate_operands(schema, args, kwargs) if operand.label != TEMPORARY]


def run_beside_meta(schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """GPU tensors with meta tensors: torch runs its meta kernel, which checks some operators and not others.

    Raises:
        RuntimeError: in the words of the meta kernel.
    """
    gpu = next(operand.label for operand in iterate_operands(schema, args, kwargs) if operand.label >= 0)
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
    found = list_settled(schema, args, kwargs)
    common = next((operand.label for operand in found if operand.label >= 0), CPU)
    scalars = 0
    outputs_first = sorted(found, key=lambda operand: not operand.is_output)
    for operand in outputs_first:
        if operand.is_cpu_scalar and not operand.is_output:
            scalars += 1
            if scalars > 1:
                raise errors.too_many_scalars()
        elif operand.label != common:
            raise errors.two_devices(name_of(common), name_of(operand.label))
    keep_scalar_gradients_home(found, common)
    return common


def by_wrapper(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Kernels with a generated check: no exception for scalars. Source: `c10::impl::check_and_update_common_device`."""
    return check_same_device(list_settled(schema, args, kwargs), schema.method)


def by_wrapper_named(method: str) -> Any:
    """A rule as `by_wrapper`, for an operator that runs as another one on a GPU."""

    def by_other_wrapper(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        return check_same_device(list_settled(schema, args, kwargs), method)

    return by_other_wrapper


def check_same_device(found: list[PlacedOperand], method: str) -> int:
    """The one device of all operands, or the error of a generated check."""
    found = sorted(found, key=lambda operand: not operand.is_output)
    common = found[0].label
    for operand in found:
        if operand.label != common:
            raise errors.checked_argument(operand.name, name_of(operand.label), name_of(common), method)
    return common


def by_destination(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Copies and the like: the first tensor says where, the others may be anywhere."""
    return list_settled(schema, args, kwargs)[0].label


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
                raise errors.two_devices(name_of(common), name_of(label))
        answers.append(common)
    return tuple(answers)


def by_packing(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int]:
    """Packed data stay where they are, batch sizes are on the CPU."""
    return labels.label_of(args[0]), CPU


def by_index(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """What is read is read with indices from there or from the CPU; to write, they may be anywhere.

    Source: `index` and `make_info` in `TensorAdvancedIndexing.cpp`, which brings them along.
    """
    found = list_settled(schema, args, kwargs)
    own = next((operand.label for operand in found if operand.name == "self"), None)
    # The indexed tensor is a temporary.
    if own is None:
        own = next((operand.label for operand in found if operand.label >= 0), CPU)
    for operand in found if "values" not in schema.names else ():
        if operand.name == "indices" and operand.label not in (CPU, own):
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({name_of(own)})")
    for operand in found:
        if operand.name == "values" and operand.label != own and operand.tensor.dim() > 0:
            raise errors.two_devices(*map(name_of, sorted((own, operand.label), reverse=True)))
    keep_scalar_gradients_home([operand for operand in found if operand.name == "values"], own)
    return own


def by_masked_index(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Indexing with a mask beside the indices. Source: `_unsafe_masked_index` in `TensorAdvancedIndexing.cpp`."""
    own, mask = labels.label_of(args[0]), labels.label_of(args[1])
    for index in args[2] if "values" not in schema.names else ():
        if index is not None and labels.label_of(index) not in (CPU, own):
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({name_of(own)})")
    # What is masked: the values, or the numbers that were read.
    masked = labels.label_of(args[3]) if "values" in schema.names else own
    if mask != masked:
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {name_of(mask)} and self on {name_of(masked)}"
        )
    if masked != own and own == CPU:
        raise errors.two_devices(name_of(masked), name_of(own))
    if masked != own:
        raise RuntimeError(f"expected device {name_of(own)} but got device {name_of(masked)} for value tensor")
    return own


def by_index_fill(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Index and tensor lie together; the value is read on the host. Source: `index_fill_` in `TensorAdvancedIndexing.cpp`."""
    own, index = labels.label_of(args[0]), labels.label_of(args[2])
    if index != own:
        raise errors.two_devices(*map(name_of, sorted((own, index), reverse=True)))
    keep_scalar_gradients_home(list_settled(schema, args, kwargs), own)
    return own


def by_result_beside_self(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """As `by_iterator`, with a result that is made where the first tensor is. Source: `BinaryOps.cpp`, `Loss.cpp`."""
    common = by_iterator(schema, args, kwargs)
    if labels.label_of(args[0]) == CPU:
        raise errors.two_devices(name_of(common), name_of(CPU))
    return common


def by_logits(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """As `by_iterator`; one less the target is written to. Source: `binary_cross_entropy_with_logits` in `Loss.cpp`."""
    common = by_iterator(schema, args, kwargs)
    if labels.label_of(args[1]) == CPU:
        raise errors.two_devices(name_of(common), name_of(CPU))
    return common


def by_loss(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """As `by_iterator`, and the mean of the result takes no scalars either. Seen on an H100."""
    by_iterator(schema, args, kwargs)
    here = [labels.label_of(tensor) for tensor in args[:2]]
    if schema.base == "mse_loss":
        raise errors.two_devices(*map(name_of, here))
    raise errors.two_devices(*map(name_of, sorted(here, reverse=True)))


def by_smooth_loss(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Its kernel takes scalars for a mistake of torch's own. Source: `Loops.cuh`."""
    by_iterator(schema, args, kwargs)
    place = next(place for place, tensor in enumerate(args[:2]) if labels.label_of(tensor) == CPU)
    raise RuntimeError(
        'iter.device(arg).is_cuda() INTERNAL ASSERT FAILED at "/pytorch/aten/src/ATen/native/cuda/Loops.cuh":109, '
        f"please report a bug to PyTorch. argument {place + 1}: expected a CUDA device but found cpu"
    )


def by_trilinear(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Products of matrices, of which nothing needs none. Source: `_trilinear` in `Linear.cpp`."""
    own = labels.label_of(args[0])
    other = next(label for label in map(labels.label_of, args[1:3]) if label != own)
    if args[0].numel():
        raise errors.checked_argument("mat2", name_of(other), name_of(own), "bmm")
    return own


def by_cholesky(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Source: `linearSolveCheckInputs` in `LinearAlgebraUtils.h`."""
    b, a = (name_of(labels.label_of(tensor)) for tensor in args[:2])
    raise RuntimeError(f"Expected b and A to be on the same device, but found b on {b} and A on {a} instead.")


def by_segments(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Source: `segment_reduce_kernel` in `SegmentReduce.cpp`."""
    name = "lengths" if schema.bind_args(args, kwargs).get("lengths") is not None else "offsets"
    raise RuntimeError(
        f"Expected data.get_device() == {name}_value.get_device() to be true, but got false.  "
        "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
    )


def by_no_kernel(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Operators that GPUs do not have: one tensor there is enough."""
    raise errors.no_kernel("aten::" + schema.name)


def by_legit_batch_norm(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """As `by_wrapper`, with what it writes to in its place among the others."""
    inputs = [operand._replace(is_output=False) for operand in list_settled(schema, args, kwargs)]
    return check_same_device(inputs, schema.method)


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
    keep_scalar_gradients_home(list_settled(schema, args, kwargs), own)
    return own


def by_where(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Every zero-dimensional tensor is brought along. Source: `where_self_out` in `TensorCompare.cpp`."""
    found = list_settled(schema, args, kwargs)
    common = next((operand.label for operand in found if operand.label >= 0), CPU)
    for operand in found:
        if operand.label != common and (operand.tensor.dim() > 0 or operand.is_output):
            raise errors.two_devices(name_of(common), name_of(operand.label))
    keep_scalar_gradients_home(found, common)
    return common


def by_filling(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The value is read on the host wherever it is. Source: `Fill.cpp`."""
    found = list_settled(schema, args, kwargs)
    own = labels.label_of(args[0])
    own = found[0].label if own == TEMPORARY else own
    keep_scalar_gradients_home(found, own)
    return own


def by_drawing(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Probabilities are brought to a GPU. Source: `bernoulli_tensor_cuda_kernel` in `Distributions.cu`."""
    own = labels.label_of(args[0])
    return own if own >= 0 else by_iterator(schema, args, kwargs)


def by_vector(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The result is made where the vector is. Source: `mv` in `Blas.cpp`."""
    mat, vec = labels.label_of(args[0]), labels.label_of(args[1])
    raise errors.checked_argument("mat", name_of(mat), name_of(vec), "addmv_")


def by_blocks(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """All where the first is. Source: `block_diag` in `TensorShape.cpp`."""
    here = [name_of(labels.label_of(tensor)) for tensor in args[0]]
    place = next(place for place, name in enumerate(here) if name != here[0])
    raise RuntimeError(
        f"torch.block_diag: input tensors must all be on the same device. Input 0 is on device {here[0]} and input {place} is "
        f"on device {here[place]}"
    )


def by_batch_norm(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """cuDNN's, or that of torch. Source: `_select_batch_norm_backend` in `Normalization.cpp`."""
    given, weight, bias = args[:3]
    low = (torch.float16, torch.bfloat16)
    by_cudnn = (
        labels.label_of(given) >= 0
        and torch.backends.cudnn.enabled
        and None not in (weight, bias)
        and given.dim() > 2
        and given.dtype != torch.bfloat16
        and weight.dtype not in low
    )
    name = "_cudnn_batch_norm" if by_cudnn else "_native_batch_norm"
    return check_same_device(list_settled(schema, args, kwargs), name)


def by_setting(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """A tensor may not take the memory of another device."""
    raise errors.other_memory(*(name_of(labels.label_of(tensor)) for tensor in args[:2]))


def by_multiplying(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Only the last factor may be a CPU scalar. Source: `addcmul_cuda_kernel` in `PointwiseOpsKernel.cu`."""
    common = by_iterator(schema, args, kwargs)
    for operand in list_settled(schema, args, kwargs):
        if common >= 0 and operand.is_cpu_scalar and operand.name in ("self", "tensor1"):
            raise RuntimeError(
                f"CPU Scalar support for {operand.name} argument is not supported when calling addcmul on CUDA tensors."
            )
    return common


def by_dividing(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """No part may be a CPU scalar. Source: `build_ternary_op` in `TensorIterator.cpp`; seen on an H100."""
    common = by_iterator(schema, args, kwargs)
    for operand in list_settled(schema, args, kwargs):
        if operand.label != common:
            raise errors.two_devices(name_of(common), name_of(operand.label))
    return common


def by_embedding(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """A lookup is `index_select` on a GPU. Source: `Embedding.cpp`."""
    weight, indices = labels.label_of(args[0]), labels.label_of(args[1])
    raise errors.checked_argument("index", name_of(indices), name_of(weight), "_index_select")


def by_convolution(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Types are compared before devices. Source: `check_input_same_type_as_parameters` in `Convolution.cpp`."""
    given, found = labels.label_of(args[0]), list_settled(schema, args, kwargs)
    chosen = str(select_convolution(*args)).rpartition(".")[2] if given == CPU else ""
    if chosen == "Slow3d":
        raise errors.no_kernel("aten::slow_conv3d_forward")
    if chosen in WRAPPERS_OF_CONVOLUTIONS:
        return check_same_device(found, WRAPPERS_OF_CONVOLUTIONS[chosen])
    for place, name in ((1, "weight"), (2, "bias")):
        other = args[place]
        if other is not None and (labels.label_of(other) >= 0) != (given >= 0) and labels.label_of(other) != TEMPORARY:
            raise convolution_types_error(args[0], other, name, or_mkldnn="Mkldnn" in chosen and name == "weight")
    return check_same_device(found, "_cudnn_convolution")


WRAPPERS_OF_CONVOLUTIONS = {
    "Slow2d": "__slow_conv2d_forward",
    "SlowDilated2d": "_slow_conv_dilated2d",
    "SlowDilated3d": "_slow_conv_dilated3d",
    "SlowTranspose2d": "slow_conv_transpose2d",
    "SlowTranspose3d": "_slow_conv_transpose3d",
}
"""The kernels of the CPU that GPUs have too, which compare no types, and how messages name them."""


def convolution_types_error(given: Any, other: Any, name: str, or_mkldnn: bool = False) -> RuntimeError:
    """The message of a convolution whose tensors differ in type, by the kernels of oneDNN or by others."""
    left = errors.type_text(given.dtype, labels.label_of(given) >= 0)
    right = errors.type_text(other.dtype, labels.label_of(other) >= 0)
    others = " or input should be a MKLDNN tensor and weight is a dense tensor" if or_mkldnn else ""
    return RuntimeError(f"Input type ({left}) and {name} type ({right}) should be the same{others}")


MARK = "devwidget: gradient stays on"


def keep_scalar_gradients_home(operands: Iterable[PlacedOperand], common: int) -> None:
    """Have the gradients of CPU scalars that met a GPU brought back to them, as the engine does.

    Source: `validate_outputs` in `engine.cpp`, which moves zero-dimensional gradients.
    """
    if not torch.is_grad_enabled():
        return
    for operand in operands:
        if operand.label not in (common, TEMPORARY) and operand.tensor.requires_grad:
            _bring_home(operand.tensor, operand.label)


def _bring_home(tensor: torch.Tensor, label: int) -> None:
    # A mode runs below it; the edge of a leaf can only be had above.
    with above_autograd():
        edge = torch.autograd.graph.get_gradient_edge(tensor)
    node: Any = edge.node
    number = edge.output_nr
    # Marked on the node: whoever asks for its tensors again gets new objects, and one hook is enough.
    key = f"{MARK} {number}"
    if node.metadata.get(key) == label:
        return
    node.metadata[key] = label

    def move_gradient(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        gradient = gradients[number]
        if gradient is None or labels.label_of(gradient) in (label, TEMPORARY):
            return gradients
        return (*gradients[:number], labels.move_tensor(gradient, label), *gradients[number + 1 :])

    node.register_prehook(move_gradient)


BY_NAME: dict[str, Any] = {
    **dict.fromkeys(
        """copy_ _copy_from _copy_from_and_resize copy resize_as_ expand_as is_same_size slice_scatter select_scatter
        diagonal_scatter as_strided_scatter _has_same_storage_numel _has_compatible_shallow_copy_type _ctc_loss
        _ctc_loss.Tensor _use_cudnn_ctc_loss _use_cudnn_ctc_loss.Tensor _ctc_loss_backward _ctc_loss_backward.Tensor""".split(),
        by_destination,
    ),
    "set_.source_Tensor": by_setting,
    **dict.fromkeys("addcmul addcmul_ addcmul.out".split(), by_multiplying),
    **dict.fromkeys("addcdiv addcdiv_ addcdiv.out".split(), by_dividing),
    "_pack_padded_sequence": by_packing,
    **dict.fromkeys(
        """index.Tensor _unsafe_index.Tensor index_put index_put_ _index_put_impl_ _unsafe_index_put""".split(),
        by_index,
    ),
    "bernoulli_.Tensor": by_drawing,
    **dict.fromkeys(
        """masked_fill.Scalar masked_fill_.Scalar masked_fill.Tensor masked_fill_.Tensor""".split(),
        by_mask,
    ),
    **dict.fromkeys("where.self where.self_out".split(), by_where),
    **dict.fromkeys("fill_.Tensor fill.Tensor".split(), by_filling),
    "embedding": by_embedding,
    **dict.fromkeys("convolution convolution_overrideable".split(), by_convolution),
    "addr_": by_iterator,
    **dict.fromkeys(
        "index_fill.int_Tensor index_fill_.int_Tensor index_fill.int_Scalar index_fill_.int_Scalar".split(),
        by_index_fill,
    ),
    **dict.fromkeys("_unsafe_masked_index _unsafe_masked_index_put_accumulate".split(), by_masked_index),
    **dict.fromkeys("logical_and logical_or logical_xor soft_margin_loss".split(), by_result_beside_self),
    "binary_cross_entropy_with_logits": by_logits,
    **dict.fromkeys("binary_cross_entropy mse_loss".split(), by_loss),
    "smooth_l1_loss": by_smooth_loss,
    "_trilinear": by_trilinear,
    "cholesky_solve": by_cholesky,
    "segment_reduce": by_segments,
    "native_batch_norm": by_batch_norm,
    **dict.fromkeys("_native_batch_norm_legit _batch_norm_with_update".split(), by_legit_batch_norm),
    "masked_scatter": by_wrapper_named("_masked_scatter_"),
    "put": by_wrapper_named("_put_"),
    "linalg_lstsq": by_wrapper_named("out_linalg_lstsq_out"),
    "mv": by_vector,
    "polar": by_wrapper_named("out_polar_out"),
    "complex": by_wrapper_named("out_complex_out"),
    "stack": by_wrapper_named("cat"),
    "block_diag": by_blocks,
}


def rule_by_table(schema: OpSchema) -> Any:
    """The rule of an operator that has none of its own, by torch's table of native functions."""
    # The parts of a nested tensor: sizes may be elsewhere.
    if schema.name.startswith("_nested_"):
        return by_destination
    if schema.name.startswith(("_foreach_", "_fused_")) and schema.name in native_rules.UNCHECKED:
        return by_position
    if schema.name in native_rules.UNCHECKED or schema.name in native_rules.COMPOSITE:
        return by_iterator
    return by_wrapper
