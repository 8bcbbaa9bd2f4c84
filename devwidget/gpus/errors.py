"""The errors that CUDA would raise, in its own types and words (torch 2.13)."""

from __future__ import annotations

import re

import torch

from devwidget.gpus.state import simulation
from devwidget.records.errors import message


def no_dtype(operator: str, dtype: torch.dtype) -> NotImplementedError:
    """An operator without a kernel for a dtype; the name of the kernel is in CUDA's sources alone."""
    name = operator.partition(".")[0].removesuffix("_")
    return lacks_dtype(_KERNEL_NAMES.get(name, f"{name}_cuda"), dtype)


def lacks_dtype(kernel: str, dtype: torch.dtype) -> NotImplementedError:
    """A kernel without a dtype. Source: `AT_DISPATCH_SWITCH` in `Dispatch.h`."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{type_name(dtype)}'")


UPSAMPLING = "linear1d", "bilinear2d", "bicubic2d", "trilinear3d"
_KERNEL_NAMES = {
    "normal": "normal_kernel_cuda",
    "uniform": "check_uniform_bounds",
    **{f"upsample_{kind}": f"upsample_{kind}_out_frame" for kind in UPSAMPLING},
    "_softmax": "host_softmax",
    "_log_softmax": "host_softmax",
    "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "max_pool2d_with_indices": "max_pool2d_with_indices_out_cuda_frame",
}
"""Where they are called otherwise than the operator. Seen on an H100, of upsampling `bilinear2d`."""


def two_devices(common: str, other: str) -> RuntimeError:
    """Element-wise operations. Source: `TensorIterator.cpp`, compute_types."""
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {common} and {other}!")


def checked_argument(argument: str, device: str, common: str, method: str, layout: str = "") -> RuntimeError:
    """Operations with a generated check; `Sparse` is a layout. Source: `c10::impl::common_device_check_failure`."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but got {argument} is on {device}, "
        f"different from other tensors on {common} "
        f"(when checking argument in method wrapper_{layout}CUDA_{method})"
    )


def other_memory(own: str, given: str) -> RuntimeError:
    """A tensor that is to take the memory of another device. Source: `checkSetStorage` in `Resize.h`."""
    return RuntimeError(
        f'Attempted to set the storage of a tensor on device "{own}" to a storage on different device "{given}".  '
        "This is no longer allowed; the devices must match."
    )


def no_kernel(operator: str, backend: str = "CUDA") -> NotImplementedError:
    """An operator that only the CPU has, or another `backend` than the one given. Source: `OperatorEntry::reportError`."""
    return NotImplementedError(
        f"Could not run '{operator}' with arguments from the '{backend}' backend. "
        "This could be because the operator doesn't exist for this backend, or was omitted during the selective/custom build "
        "process (if using custom build). If you are a Facebook employee using PyTorch on mobile, please visit "
        "https://fburl.com/ptmfixes for possible resolutions."
    )


def type_text(dtype: torch.dtype, on_gpu: bool) -> str:
    """`torch.cuda.FloatTensor`, the old name of a dtype on a device."""
    legacy = _LEGACY.get(dtype, str(dtype).removeprefix("torch.").capitalize())
    return f"torch.{'cuda.' if on_gpu else ''}{legacy}Tensor"


def type_name(dtype: torch.dtype) -> str:
    """`Float`, as kernels name a dtype."""
    return type_text(dtype, False).removeprefix("torch.").removesuffix("Tensor")


def in_device_words(error: Exception) -> Exception:
    """The error of a CPU kernel as that of the GPU would word it: types and kernels are named after the device."""
    text = _TYPE.sub(r"torch.cuda.\1Tensor", message(error)).replace("CPUFloatType", "CUDAFloatType")
    text = _KERNEL.sub(r'"\1_cuda" not implemented', text).replace("expected m1 and m2 to", "expected mat1 and mat2 to")
    text = _CUSOLVER.sub(lambda found: f'"{_OF_CUSOLVER[found[1]]}_cusolver"', text)
    return error if text == message(error) else type(error)(text)


_TYPE = re.compile(r"torch\.([A-Z]\w+)Tensor")
_OF_CUSOLVER = {"cholesky": "cholesky", "lu": "lu_factor"}
_CUSOLVER = re.compile(r'"(cholesky|lu)_cuda"')
_KERNEL = re.compile(r'"(\w+?)_cpu" not implemented', re.IGNORECASE)
_NAMES = (
    "float32 Float float64 Double float16 Half bfloat16 BFloat16 uint8 Byte int8 Char int16 Short int32 Int int64 Long".split()
)
_LEGACY = {getattr(torch, dtype): name for dtype, name in zip(_NAMES[::2], _NAMES[1::2], strict=True)}
_LEGACY |= {torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble"}
_LEGACY |= {torch.complex32: "ComplexHalf"}


def out_of_memory(index: int, requested: int) -> RuntimeError:
    """No room left on a GPU."""
    account = simulation.ledger.account_of(index)
    account.ooms += 1
    sizes = {"requested": requested, "capacity": account.capacity, "free": account.free, "held": account.held,
             "used": account.context + account.reserved, "cached": account.reserved - account.held}  # fmt: skip
    return torch.OutOfMemoryError(_OUT_OF_MEMORY.format(index=index, **{name: _format_size(sizes[name]) for name in sizes}))


_OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate {requested}. GPU {index} has a total capacity of {capacity} of which {free} "
    "is free. Including non-PyTorch memory, this process has {used} memory in use. Of the allocated memory {held} is "
    "allocated by PyTorch, and {cached} is reserved by PyTorch but unallocated. If reserved but unallocated memory "
    "is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
    "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
"""Source: `CUDACachingAllocator.cpp`, malloc."""


def _format_size(count: int) -> str:
    """Bytes as CUDA's allocator prints them. Source: `format_size` in `CUDACachingAllocator.cpp`."""
    for limit, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if count >= limit:
            return f"{count / limit:.2f} {unit}"
    return f"{count} bytes"
