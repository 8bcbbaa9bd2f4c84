"""Checks that some operators make on a GPU beyond that of equal devices: of types, of workspaces, of determinism."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import torch

from devwidget.gpus import errors as cuda_errors
from devwidget.gpus import labels
from devwidget.gpus.op_schema import Guard, OpSchema
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import graph_task


def no_kernel(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Operators that only the CPU has.

    Raises:
        NotImplementedError: for a tensor on a GPU.
    """
    if target >= 0:
        raise cuda_errors.no_kernel("aten::" + schema.name)


def without_kernel_for(dtypes: frozenset[torch.dtype], further: Guard | None) -> Guard:
    """A guard against dtypes for which only the CPU has a kernel, behind another guard."""

    def no_kernel_for_dtype(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any) -> None:
        if further is not None:
            further(schema, args, kwargs, target)
        given = args[0] if args else None
        if isinstance(given, torch.Tensor) and given.dtype in dtypes and isinstance(target, int) and target >= 0:
            others = [each.dtype for each in args if isinstance(each, torch.Tensor)]
            # Else promoted.
            if all(dtype in dtypes or not (dtype.is_floating_point or dtype.is_complex) for dtype in others):
                raise cuda_errors.no_dtype(schema.name, given.dtype)

    return no_kernel_for_dtype


def check_lengths(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Packing reads the lengths on the host. Source: `PackedSequence.cpp`.

    Raises:
        RuntimeError: if they are on a GPU.
    """
    lengths = args[1]
    label = labels.label_of(lengths)
    if label >= 0:
        kind = cuda_errors.type_name(lengths.dtype)
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {labels.name_of(label)} {kind} tensor"
        )


def check_convolution_types(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Convolutions compare types, of which the device is a part, and cuDNN has no name for some. Source: `Convolution.cpp`.

    Raises:
        RuntimeError: if input, weight and bias differ, or are of such a type.
    """
    if target < 0:
        return
    if args[0].dtype in (torch.int16, torch.int64) and torch.backends.cudnn.enabled:
        kind = cuda_errors.type_name(args[0].dtype)
        raise RuntimeError(f"getCudnnDataTypeFromScalarType() not supported for {kind}")
    for place, name in ((1, "weight"), (2, "bias")):
        other = args[place]
        if other is not None and other.dtype != args[0].dtype:
            raise convolution_types_error(args[0], other, name)


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


def check_product(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Products: not of whole numbers or halves that are complex, and not without a workspace.

    Raises:
        NotImplementedError: for those on a GPU.
        torch.cuda.OutOfMemoryError: if the workspace does not fit.
    """
    if target < 0:
        return
    has_workspace = not (labels.inside.cudnn or graph_task() == labels.inside.cudnn_backward != -1)
    if has_workspace:
        take_workspace(target)
    dtype = args[0].dtype
    if not (dtype.is_floating_point or dtype.is_complex) or dtype == torch.complex32:
        kind = cuda_errors.type_name(dtype)
        kernel = INTEGER_KERNELS[schema.name]
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{kind}'")
    if has_workspace and schema.name == "addmm" and args[0].dim() == 1 and not kwargs:
        pass_by_workspace(target, args[1].shape[0] * args[2].shape[1] * dtype.itemsize)


def pass_by_workspace(index: int, result: int) -> None:
    """A product with a bias is one kernel of cuBLASLt, whose workspace is there while it runs, beside the result.

    Source: `gemm_and_bias` in `CUDABlas.cpp`, `_parseChosenWorkspaceSize`; seen on an H100.

    Args:
        index: the GPU.
        result: bytes of what comes out, which has a place before the kernel begins.

    Raises:
        torch.cuda.OutOfMemoryError: if both do not fit.
    """
    ledger = SimulationState.ledger
    if not ledger.accounts[index].workspace:
        return
    taken = []
    try:
        for size in (result, LT_WORKSPACE):
            block = ledger.take_bytes(index, size)
            if block is None:
                raise cuda_errors.out_of_memory(index, size, ledger)
            taken.append(block)
    finally:
        ledger.freed.extend(taken)


def check_norm_types(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Layer and group norm read weight and bias in the dtype of the input. Source: `layer_norm_kernel.cu`.

    Raises:
        RuntimeError: if they differ, on a GPU.
    """
    for other in args[1:]:
        if target >= 0 and isinstance(other, torch.Tensor) and other.dtype != args[0].dtype:
            wanted, found = (cuda_errors.type_name(tensor.dtype) for tensor in (args[0], other))
            raise RuntimeError(f"expected scalar type {wanted} but found {found}")


def check_batch_norm_types(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Batch norm does too, but for inputs in low precision. Source: `Normalization.cu`.

    Raises:
        RuntimeError: if they differ, on a GPU.
    """
    if args[0].dtype not in (torch.float16, torch.bfloat16):
        check_norm_types(schema, args, kwargs, target)


def check_integer_product(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """A product of bytes has sizes of its own on a GPU. Source: `_int_mm_out_cuda` in `cuda/Blas.cpp`.

    Raises:
        RuntimeError: for others.
    """
    if target < 0:
        return
    rows, inner, columns = args[0].shape[0], args[0].shape[1], args[1].shape[1]
    if rows <= 16:
        raise RuntimeError(f"self.size(0) needs to be greater than 16, but got {rows}")
    for name, size in (("self.size(1)", inner), ("mat2.size(1)", columns)):
        if size == 0 or size % 8:
            raise RuntimeError(f"{name} needs to be greater than 0 and a multiple of 8, but got {size}")


def check_least_squares(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """GPUs have one way to solve them. Source: `linalg_lstsq` in `BatchLinearAlgebra.cpp`.

    Raises:
        RuntimeError: for another.
    """
    if target >= 0 and kwargs.get("driver") not in (None, "gels"):
        raise RuntimeError("torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA")


def check_scaled_product(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Numbers of eight bits are multiplied by newer cards alone. Source: `_scaled_mm_allowed_device` in `cuda/Blas.cpp`.

    Raises:
        RuntimeError: on an older one.
    """
    if target >= 0 and torch.cuda.get_device_capability(target) < (8, 9):
        raise RuntimeError(
            "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+"
        )


def check_class_indices(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Targets are 64-bit indices. Source: `NLLLoss.cu`.

    Raises:
        NotImplementedError: for others, on a GPU.
    """
    given, indices = args[0], args[1]
    if target >= 0 and indices.dtype not in (torch.int64, torch.uint8):
        kernel = "nll_loss_forward_no_reduce_cuda_kernel_index"
        if args[3] != 0 or given.dim() == 1:
            kernel = f"nll_loss_forward_reduce_cuda_kernel_{'2d' if given.dim() == 2 else '1d'}_index"
        kind = cuda_errors.type_name(indices.dtype)
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{kind}'")


def convolution_types_error(given: Any, other: Any, name: str, or_mkldnn: bool = False) -> RuntimeError:
    """The message of a convolution whose tensors differ in type, by the kernels of oneDNN or by others."""
    left = cuda_errors.type_text(given.dtype, labels.label_of(given) >= 0)
    right = cuda_errors.type_text(other.dtype, labels.label_of(other) >= 0)
    others = " or input should be a MKLDNN tensor and weight is a dense tensor" if or_mkldnn else ""
    return RuntimeError(f"Input type ({left}) and {name} type ({right}) should be the same{others}")


def check_generator(generator: torch.Generator, target: int) -> None:
    """A generator draws on its own device alone.

    Raises:
        RuntimeError: in CUDA's words.
    """
    expected = "cuda" if target >= 0 else "cpu"
    found = labels.generator_kind(generator)
    if found != expected and target != labels.META:
        raise cuda_errors.wrong_generator(expected, found)


LT_WORKSPACE = 1 << 20


def take_workspace(index: int) -> None:
    """Before a product on a GPU: the thread's handle has its workspace. All of backward is one thread there.

    Raises:
        torch.cuda.OutOfMemoryError: if it does not fit.
    """
    ledger = SimulationState.ledger
    account = ledger.accounts[index]
    if not account.workspace:
        return
    handle = "backward" if graph_task() >= 0 else threading.get_ident()
    if handle not in account.workspaces:
        block = ledger.take_bytes(index, account.workspace)
        if block is None:
            raise cuda_errors.out_of_memory(index, account.workspace, ledger)
        account.workspaces[handle] = block


MAXIMUM = 2
"""The mode of an embedding bag that keeps the largest."""
NONDETERMINISTIC = {
    **{f"{name}_backward": f"{name}_backward_cuda" for name in ("avg_pool3d", "grid_sampler_2d", "grid_sampler_3d")},
    **{f"_adaptive_avg_pool{n}d_backward": f"adaptive_avg_pool{n}d_backward_cuda" for n in (2, 3)},
    **{f"fractional_max_pool{n}d_backward": f"fractional_max_pool{n}d_backward_cuda" for n in (2, 3)},
    **{f"max_unpool{n}d": f"max_unpooling{n}d_forward_out" for n in (2, 3)},
    **{f"upsample_{kind}_backward": f"upsample_{kind}_backward_out_cuda" for kind in cuda_errors.UPSAMPLING},
    "adaptive_max_pool2d_backward": "adaptive_max_pool2d_backward_cuda",
    "reflection_pad1d_backward": "reflection_pad1d_backward_out_cuda",
    "reflection_pad2d_backward": "reflection_pad2d_backward_cuda",
    "reflection_pad3d_backward": "reflection_pad3d_backward_out_cuda",
    "nll_loss2d_forward": "nll_loss2d_forward_out_cuda_template",
    "_ctc_loss_backward": "ctc_loss_backward_gpu",
    "max_pool3d_with_indices_backward": "max_pool3d_with_indices_backward_cuda",
    **dict.fromkeys(("histc", "histc.out"), "_histc_cuda with floating point input"),
    **dict.fromkeys(("median.dim", "median.dim_values"), "median CUDA with indices output"),
    **dict.fromkeys(("nanmedian.dim", "nanmedian.dim_values"), "median CUDA with indices output"),
    **dict.fromkeys(("cumsum", "cumsum_", "cumsum.out"), "cumsum_cuda_kernel"),
    **dict.fromkeys(("put", "put_"), "put_"),
    **dict.fromkeys(("scatter_reduce.two", "scatter_reduce_.two", "scatter_reduce.two_out"), "scatter_reduce_cuda_prod_"),
    "bincount": "_bincount_cuda",
    "_embedding_bag_backward": "embedding_bag_backward_cuda_max",
}
"""Operator -> as what CUDA speaks of its kernel. Source: the docstring of `use_deterministic_algorithms`, and CUDA's."""
_FLOATING_ONLY = {"cumsum", "histc"}
_ONLY_WITH = {
    "put": (3, (True,)),
    "bincount": (1, None),
    "_embedding_bag_backward": (8, (MAXIMUM,)),
    "scatter_reduce": (4, ("prod",)),
}
"""Operator -> the place of an argument, and for which of its values the kernel is one that only GPUs have; None for any."""


def alert_nondeterministic(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Refuse, or warn of, a kernel that is not deterministic. Source: `alertNotDeterministic` in `Context.cpp`.

    Raises:
        RuntimeError: unless the user asked for a warning alone.
    """
    if target < 0 or not torch.are_deterministic_algorithms_enabled():
        return
    name = schema.name.partition(".")[0].removesuffix("_")
    if name in _FLOATING_ONLY and not (args[0].is_floating_point() or args[0].is_complex()):
        return
    if name in _ONLY_WITH and not _has_argument(args, *_ONLY_WITH[name]):
        return
    says = f"{NONDETERMINISTIC[schema.name]} does not have a deterministic implementation, but you set "
    if torch.is_deterministic_algorithms_warn_only_enabled():
        warnings.warn(
            f"{says}'torch.use_deterministic_algorithms(True, warn_only=True)'. You can file an issue at "
            "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this operation.",
            stacklevel=2,
        )
        return
    raise RuntimeError(
        f"{says}'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation, or you can "
        "use the 'warn_only=True' option, if that's acceptable for your application. You can also file an issue at "
        "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this operation."
    )


def _has_argument(args: tuple[Any, ...], place: int, values: tuple[Any, ...] | None) -> bool:
    given = args[place] if place < len(args) else None
    return given is not None if values is None else given in values
