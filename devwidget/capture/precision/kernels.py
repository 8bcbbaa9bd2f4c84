"""Operators without a kernel for a device, or for a dtype on that device."""

from __future__ import annotations

import re
from typing import Any

import torch

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.precision.indices import is_about_indices
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.tensors import replace_tensors
from devwidget.records.errors import message
from devwidget.records.fault_details import NoKernel

_NO_KERNEL = re.compile(
    r"Could not run 'aten::|not implemented for '|Low precision dtypes not supported|is not supported on"
    r"|Unsupported dtype \w+|unsupported ScalarType|cuFFT only supports dimensions"
    r"|must be either (?:a floating|float or double)|only supports? floating|Expected a floating point|does not support bool"
    r"|(?:inputs to be|only supported for) Half, Float (?:and|or) Double",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:not implemented for '|[Uu]nsupported (?:dtype|ScalarType) |tensors? but got |of scalar type: |Got: )(\w+)"
)
_SIZES = re.compile(r"got a signal size of *\[([\d, ]+)\]")
LOW = torch.float16, torch.bfloat16
_OTHER_NAMES = {"Byte": torch.uint8, "Char": torch.int8, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128}


def handle_failure(call: FailedCall) -> Any:
    """Repair by running on the CPU in full precision and moving the results back."""
    text = message(call.error)
    if not _NO_KERNEL.search(text) or is_about_indices(text):
        return NOT_OURS
    lacking = _find_dtype(call, text)
    if lacking is not None and not lacking.is_floating_point and any(tensor.is_floating_point() for tensor in call.tensors()):
        return NOT_OURS  # dtypes that do not mix
    tensors = [tensor for tensor in call.tensors() if is_accelerator(tensor.device)]
    with_it = [tensor for tensor in call.tensors() if tensor.dtype == lacking]
    tensors = with_it or tensors  # one that no longer exists was computed from those that do
    if not tensors:
        return NOT_OURS
    home = tensors[0].device
    out = call.again_changing(call.tensors(), lambda tensor: _widened(tensor, lacking).cpu())
    if out is not NOT_OURS:
        with call.state.tracker.set_cause("healed"):
            out = replace_tensors(out, lambda t: _narrowed(t, lacking).to(home))
    has_parts = hasattr(torch.return_types, call.name)  # `values, vectors`
    call.report("kernel", tensors, home, out, NoKernel(_name_of(lacking), _read_sizes(text), has_parts))
    return out


def _find_dtype(call: FailedCall, text: str) -> torch.dtype | None:
    """Return the dtype that has no kernel: the one in the message, else a low precision among the operands."""
    if _SIZES.search(text):
        return torch.float16
    met = [tensor.dtype for tensor in call.tensors()]
    named = _NAMED.search(text)
    found = dtype_named(named[1]) if named is not None else None
    if found is not None:
        return found
    candidates = [dtype for dtype in met if dtype in LOW]
    if "float" in text or "bool" in text:  # no low precision either, or only integers
        candidates += [dtype for dtype in met if not dtype.is_floating_point and not dtype.is_complex]
    return candidates[0] if candidates else None


def dtype_named(name: str) -> torch.dtype | None:
    """Return the dtype that torch's messages call `Half` or `Long`."""
    found = _OTHER_NAMES.get(name, getattr(torch, name.lower(), None))
    return found if isinstance(found, torch.dtype) else None


def _name_of(dtype: torch.dtype | None) -> str:
    return "" if dtype is None else format_dtype(dtype)


def _read_sizes(text: str) -> tuple[int, ...]:
    found = _SIZES.search(text)
    return tuple(map(int, found[1].split(","))) if found is not None else ()


def _widened(tensor: torch.Tensor, lacking: torch.dtype | None) -> torch.Tensor:
    if tensor.dtype != lacking:
        return tensor
    if tensor.dtype == torch.complex32:
        return tensor.to(torch.complex64)
    return tensor if tensor.is_complex() else tensor.float()


def _narrowed(tensor: torch.Tensor, lacking: torch.dtype | None) -> torch.Tensor:
    if lacking is not None and lacking in LOW and tensor.dtype == torch.float32:
        return tensor.to(lacking)
    return tensor
