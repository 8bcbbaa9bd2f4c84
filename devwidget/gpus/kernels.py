"""What a GPU's kernels refuse, by type, by workspace, by determinism, and what only they can do.

The kernels of virtual GPUs are the CPU's. A guard says first what a GPU would not take; where the CPU has no kernel, at all or
for a dtype, the result is made of other operators, or computed in a wider dtype."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from devwidget.capture.memory.roles import MemoryBlock
from devwidget.gpus import errors, labels, native_rules
from devwidget.gpus.call import Call, Guard, OpSchema, Target
from devwidget.gpus.parts import PARTS
from devwidget.gpus.rules import convolution_types_error
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import DisableTorchFunction, graph_task, singular_values, tree_map_only
from devwidget.records.errors import SimulationError, message
from devwidget.records.schema.message import Message


def no_kernel(call: Call) -> None:
    """Operators that only the CPU has."""
    if call.is_on_gpu():
        raise errors.no_kernel("aten::" + call.schema.name)


def without_kernel_for(dtypes: frozenset[torch.dtype], further: Guard | None) -> Guard:
    """A guard against dtypes for which only the CPU has a kernel, behind another guard."""

    def no_kernel_for_dtype(call: Call) -> None:
        if further is not None:
            further(call)
        given = call.args[0] if call.args else None
        if isinstance(given, torch.Tensor) and given.dtype in dtypes and call.is_on_gpu():
            others = [each.dtype for each in labels.list_tensors(call.args)]
            # Else promoted.
            if all(dtype in dtypes or not (dtype.is_floating_point or dtype.is_complex) for dtype in others):
                raise errors.no_dtype(call.schema.name, given.dtype)

    return no_kernel_for_dtype


def _check_lengths(call: Call) -> None:
    """Packing reads the lengths on the host. Source: `PackedSequence.cpp`."""
    lengths = call["lengths"]
    if labels.label_of(lengths) >= 0:
        found = f"{lengths.dim()}D {labels.device_of(lengths)} {errors.type_name(lengths.dtype)} tensor"
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {found}")


def _check_convolution_types(call: Call) -> None:
    """Convolutions compare types, the device included, and cuDNN has no name for some. Source: `Convolution.cpp`."""
    if not call.is_on_gpu():
        return
    dtype = call["input"].dtype
    if dtype in (torch.int16, torch.int64) and torch.backends.cudnn.enabled:
        raise RuntimeError(f"getCudnnDataTypeFromScalarType() not supported for {errors.type_name(dtype)}")
    for name in ("weight", "bias"):
        other = call[name]
        if other is not None and other.dtype != dtype:
            raise convolution_types_error(call["input"], other, name)


INTEGER_KERNELS = {
    "mm": "addmm_cuda",
    "addmm": "addmm_cuda",
    "bmm": "baddbmm_cuda",
    "baddbmm": "baddbmm_cuda",
    "mv": "addmv_impl_cuda",
    "addmv": "addmv_impl_cuda",
    "dot": "dot",
    "vdot": "vdot",
}
"""Products that GPUs have for floating types alone, with the names under which it says so. Source: `cuda/Blas.cpp`."""


def _check_product(call: Call) -> None:
    if not call.is_on_gpu():
        return
    target, args = call.target, call.args
    _take_workspace(target)
    dtype = args[0].dtype
    if not (dtype.is_floating_point or dtype.is_complex) or dtype == torch.complex32:
        raise errors.lacks_dtype(INTEGER_KERNELS[call.schema.name], dtype)
    if call.schema.name == "addmm" and args[0].dim() == 1 and not call.kwargs:
        _pass_by_workspace(target, args[1].shape[0] * args[2].shape[1] * dtype.itemsize)


def _pass_by_workspace(index: int, result: int) -> None:
    """A product with a bias is one kernel of cuBLASLt, whose workspace exists while it runs, next to `result` bytes.

    Source: `gemm_and_bias` in `CUDABlas.cpp`, `_parseChosenWorkspaceSize`; seen on an H100.
    """
    ledger = simulation.ledger
    if not ledger.accounts[index].workspace:
        return
    taken: list[MemoryBlock] = []
    try:
        taken.extend(labels.take_bytes(index, size) for size in (result, LT_WORKSPACE))
    finally:
        ledger.freed.extend(taken)


def _check_norm_types(call: Call) -> None:
    """Layer and group norm read weight and bias in the dtype of the input. Source: `layer_norm_kernel.cu`."""
    given = call.args[0]
    for other in labels.list_tensors(call.args[1:]):
        if call.is_on_gpu() and other.dtype != given.dtype:
            wanted, found = (errors.type_name(tensor.dtype) for tensor in (given, other))
            raise RuntimeError(f"expected scalar type {wanted} but found {found}")


def _check_batch_norm_types(call: Call) -> None:
    """Batch norm does too, except for inputs in low precision. Source: `Normalization.cu`."""
    if call["input"].dtype not in (torch.float16, torch.bfloat16):
        _check_norm_types(call)


def _check_class_indices(call: Call) -> None:
    """Targets are 64-bit indices. Source: `NLLLoss.cu`."""
    given, indices = call["self"], call["target"]
    if call.is_on_gpu() and indices.dtype not in (torch.int64, torch.uint8):
        kernel = "nll_loss_forward_no_reduce_cuda_kernel_index"
        if call["reduction"] != 0 or given.dim() == 1:
            kernel = f"nll_loss_forward_reduce_cuda_kernel_{'2d' if given.dim() == 2 else '1d'}_index"
        raise errors.lacks_dtype(kernel, indices.dtype)


def check_generator(generator: torch.Generator | None, target: Target) -> None:
    """A generator draws on its own device alone."""
    if generator is None or not isinstance(target, int) or target == labels.META:
        return
    expected = "cuda" if target >= 0 else "cpu"
    is_virtual = generator._cdata in labels.VIRTUAL_GENERATORS  # type: ignore[attr-defined]
    found = "cuda" if is_virtual else generator.device.type
    if found != expected:
        # Source: `check_generator` in `ATen/core/Generator.h`.
        raise RuntimeError(f"Expected a '{expected}' device type for generator but found '{found}'")


LT_WORKSPACE = 1 << 20


def _take_workspace(index: int) -> None:
    """Before a product on a GPU: the thread's handle has its workspace. All of backward is one thread there."""
    account = simulation.ledger.accounts[index]
    handle = "backward" if graph_task() >= 0 else threading.get_ident()
    if account.workspace and handle not in account.workspaces:
        account.workspaces[handle] = labels.take_bytes(index, account.workspace)


GUARDS: dict[str, Guard] = {
    "_pack_padded_sequence": _check_lengths,
    "convolution": _check_convolution_types,
    **dict.fromkeys("native_batch_norm _native_batch_norm_legit _batch_norm_with_update".split(), _check_batch_norm_types),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), _check_norm_types),
    "nll_loss_forward": _check_class_indices,
    **dict.fromkeys(INTEGER_KERNELS, _check_product),
}
LACKING: dict[str, frozenset[torch.dtype]] = {}
"""Operator, or one overload of it, -> the dtypes for which CUDA has no kernel."""
for _dtypes, _names in native_rules.LACKING.items():
    LACKING |= dict.fromkeys(_names, frozenset(getattr(torch, dtype) for dtype in _dtypes.split()))


aten: Any = torch.ops.aten


class NoKernel(SimulationError, NotImplementedError):
    """An operator that only GPUs have; a program that can do without it catches what CUDA would raise."""


_NOWHERE = ("Could not run 'aten::", "from the 'CPU' backend")
_LACKS = ("not implemented on the CPU", "on CPU does not support")


def _is_kernel_missing(error: RuntimeError) -> bool:
    text = message(error)
    return all(words in text for words in _NOWHERE) or any(words in text for words in _LACKS)


def _sum_without_nan(tensor: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    """Complex numbers too."""
    found: torch.Tensor = aten.sum(tensor.masked_fill(tensor.isnan(), 0), dim, keepdim, dtype=dtype)
    return found


def _decompose(matrix: torch.Tensor, *args: Any, driver: str | None = None, **kwargs: Any) -> Any:
    """Singular values by the CPU's one way, whichever of cuSOLVER's is named."""
    return (singular_values.U if "U" in kwargs else singular_values.default)(matrix, *args, **kwargs)


def _soften(kernel: Any, tensor: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    """Softmax with a result in single precision. Source: `host_softmax` in `SoftMax.cu`."""
    if half_to_float:
        return kernel(tensor.float(), dim, False)
    return None


def _soften_backward(kernel: Any, gradient: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype) -> Any:
    """Its gradient, which is in half precision again. Source: `softmax_backward_cuda_out` in `SoftMax.cu`."""
    if gradient.dtype == dtype:
        return None
    return kernel(gradient, output, dim, gradient.dtype).to(dtype)


_SOFTMAX = "_softmax", "_log_softmax"
_SOFTMAX_BACKWARD = "_softmax_backward_data", "_log_softmax_backward_data"
GPU_FORMS: dict[str, Callable[..., Any]] = {
    **{name: partial(_soften, getattr(aten, name)) for name in _SOFTMAX},
    **{name: partial(_soften_backward, getattr(aten, name)) for name in _SOFTMAX_BACKWARD},
    **dict.fromkeys(("_linalg_svd", "_linalg_svd.U"), _decompose),
}
"""Operators for which GPUs have none but this form, though the CPU has a kernel; None where that does the same."""
PARTS.kernels["nansum"] = _sum_without_nan


_HALF = {torch.float16: torch.float32, torch.complex32: torch.complex64}
_INTEGERS = {"Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8}
WIDER = {
    "Half": _HALF,
    "ComplexHalf": _HALF,
    "BFloat16": {torch.bfloat16: torch.float32},
    **{name: {dtype: torch.float64} for name, dtype in _INTEGERS.items()},
}
"""As a kernel names the dtype that it lacks -> what takes the place of that and its like."""
COMPLEX_HALF = native_rules.COMPLEX_HALF
_NOT_ON_GPUS = re.compile(r"linalg|cholesky|inverse|^lu_|triangular_solve|ormqr|geqrf|svd|_eig|_cdist")
"""GPUs have no kernel for low precision either. Source: the dtypes of these operators in torch's op_db."""
_MISSING = re.compile(r"not implemented for \'(\w+)\'|Unsupported dtype (\w+)")


_NO_MEMORY = re.compile(r"you tried to allocate (\d+) bytes")


def run_substitute(call: Call, error: RuntimeError) -> Any:
    """The result of an operator for which the CPU has no kernel; any other error is raised in the words of the GPU."""
    if (asked := _NO_MEMORY.search(message(error))) and call.is_on_gpu():
        raise errors.out_of_memory(call.target, int(asked[1])) from None
    kernel: Callable[..., Any] = call.func
    if _is_kernel_missing(error):
        if call.schema.name not in PARTS.kernels:
            raise NoKernel(
                Message("virtual GPUs have no kernel for `{name}`", name=call.func._schema.name),
                why=Message("they run CPU kernels, and this operator only has a GPU kernel"),
                instead=Message("compute the same in another way, such as its eager form"),
            ) from None
        kernel = PARTS.kernels[call.schema.name]
        try:
            return kernel(*call.args, **call.kwargs)
        except RuntimeError as further:
            error = further
    wider = _find_wider(call.schema, message(error))
    if wider is None:
        raise errors.in_device_words(error) from None
    return _run_widened(call, kernel, wider)


def _find_wider(schema: OpSchema, text: str) -> dict[torch.dtype, torch.dtype] | None:
    """Which dtypes take the place of the one that a kernel lacks; None if GPUs have no kernel either."""
    found = _MISSING.search(text)
    if found is None or _NOT_ON_GPUS.search(schema.name):
        return None
    kind = found[1] or found[2]
    if kind == "Bool" and schema.name in ("median", "nanmedian"):  # sorted there, which orders these too
        return {torch.bool: torch.uint8}
    if kind == "ComplexHalf" and schema.base not in COMPLEX_HALF:
        return None
    return WIDER.get(kind)


def _run_widened(call: Call, kernel: Callable[..., Any], wider: dict[torch.dtype, torch.dtype]) -> Any:
    narrower = {wide: narrow for narrow, wide in wider.items()}
    with DisableTorchFunction():
        args, kwargs = _cast_tensors((call.args, call.kwargs), wider)
        result = _cast_tensors(kernel(*args, **kwargs), narrower)
        wide = Call(call.schema, call.func, args, kwargs)
        written = [call[name].copy_(wide[name]) for name in call.schema.written if isinstance(call[name], torch.Tensor)]
    if call.schema.fresh or not written:
        return result
    return written[0] if len(written) == 1 else tuple(written)


def _cast_tensors(tree: Any, dtypes: dict[torch.dtype, torch.dtype]) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(dtypes.get(tensor.dtype, tensor.dtype)), tree)
