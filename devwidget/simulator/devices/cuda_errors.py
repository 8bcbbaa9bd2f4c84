"""The errors that CUDA would raise, in its own types and words (torch 2.13)."""

from __future__ import annotations

import re

import torch

from devwidget.records.errors import SimulationError, message
from devwidget.simulator.devices.ledger import Ledger

_ADVICE = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    "\nDevice-side assertion tracking was not enabled by user."
)


def invalid_ordinal() -> RuntimeError:
    """A GPU that does not exist."""
    text = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?" + _ADVICE
    return torch.AcceleratorError(text)


def two_devices(common: str, other: str) -> RuntimeError:
    """Element-wise operations. Source: `TensorIterator.cpp`, compute_types."""
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {common} and {other}!")


def checked_argument(argument: str, device: str, common: str, method: str) -> RuntimeError:
    """Operations with a generated check. Source: `c10::impl::common_device_check_failure`."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but got {argument} is on {device}, "
        f"different from other tensors on {common} (when checking argument in method {method})"
    )


def too_many_scalars() -> RuntimeError:
    """More than one CPU scalar beside CUDA tensors. Source: `TensorIterator.cpp`, compute_types."""
    return RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")


def wrong_generator(expected: str, found: str) -> RuntimeError:
    """A random generator of another device. Source: `check_generator` in `ATen/core/Generator.h`."""
    return RuntimeError(f"Expected a '{expected}' device type for generator but found '{found}'")


def no_cuda_kernel(operator: str) -> NotImplementedError:
    """An operator that only the CPU has. Source: `OperatorEntry::reportError`."""
    return NotImplementedError(
        f"Could not run '{operator}' with arguments from the 'CUDA' backend. This could be because the operator doesn't "
        "exist for this backend, or was omitted during the selective/custom build process (if using custom build). If you "
        "are a Facebook employee using PyTorch on mobile, please visit https://fburl.com/ptmfixes for possible resolutions."
    )


def type_text(dtype: torch.dtype, on_gpu: bool) -> str:
    """`torch.cuda.FloatTensor`, the old name of a dtype on a device."""
    legacy = _LEGACY.get(dtype, str(dtype).removeprefix("torch.").capitalize())
    return f"torch.{'cuda.' if on_gpu else ''}{legacy}Tensor"


def in_cuda_words(error: Exception) -> Exception:
    """The error of a CPU kernel as the CUDA kernel would word it: types and kernels are named after the device."""
    text = _TYPE.sub(r"torch.cuda.\1Tensor", message(error)).replace("CPUFloatType", "CUDAFloatType")
    text = _KERNEL.sub(r'"\1_cuda" not implemented', text)
    return error if text == message(error) else type(error)(text)


_TYPE = re.compile(r"torch\.([A-Z]\w+)Tensor")
_KERNEL = re.compile(r'"(\w+?)_cpu" not implemented', re.IGNORECASE)
_LEGACY = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.bool: "Bool",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def out_of_memory(index: int, requested: int, ledger: Ledger) -> RuntimeError:
    """No room left on a GPU. Source: `CUDACachingAllocator.cpp`, malloc."""
    account = ledger.account(index)
    account.ooms += 1
    cached = account.reserved - account.held
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {_size(requested)}. GPU {index} has a total capacity of "
        f"{_size(account.capacity)} of which {_size(account.capacity - account.held)} is free. Including non-PyTorch memory, "
        f"this process has {_size(account.held)} memory in use. Of the allocated memory {_size(account.held)} is allocated "
        f"by PyTorch, and {_size(max(cached, 0))} is reserved by PyTorch but unallocated. If reserved but unallocated memory "
        "is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def _size(count: int) -> str:
    """Bytes as CUDA's allocator prints them. Source: `format_size` in `CUDACachingAllocator.cpp`."""
    for limit, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if count >= limit:
            return f"{count / limit:.2f} {unit}"
    return f"{count} bytes"


def needs_values(what: str) -> SimulationError:
    """What was asked cannot be answered without values."""
    return SimulationError(
        f"{what} needs the values of a tensor",
        why="these virtual GPUs were started with compute=False, so tensors have none",
        instead="devwidget.simulate(..., compute=True)",
    )
