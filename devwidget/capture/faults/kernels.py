"""Operators without a kernel for a device, or for a dtype on that device."""

from __future__ import annotations

import re
from typing import Any

import torch

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.tensors import replace_tensors
from devwidget.records.errors import message
from devwidget.records.fault_details import NoKernel

_NO_KERNEL = re.compile(
    r"Could not run 'aten::|not implemented for '|Low precision dtypes not supported|is not supported on"
    r"|Unsupported dtype \w+|cuFFT only supports dimensions"
)


def handle_failure(call: FailedCall) -> Any:
    """Repair by running on the CPU in full precision and moving the results back."""
    if not _NO_KERNEL.search(message(call.error)):
        return NOT_OURS
    tensors = [tensor for tensor in call.tensors() if is_accelerator(tensor.device)]
    if not tensors:
        return NOT_OURS
    home, low = tensors[0].device, next((t.dtype for t in tensors if t.dtype in (torch.float16, torch.bfloat16)), None)
    out = call.again_changing(call.tensors(), lambda tensor: _widened(tensor, low).cpu())
    if out is not NOT_OURS:
        with call.state.tracker.set_cause("healed"):
            out = replace_tensors(out, lambda t: _narrowed(t, low).to(home))
    call.report("kernel", tensors, home, out, NoKernel(str(low or "").removeprefix("torch.")))
    return out


def _widened(tensor: torch.Tensor, low: torch.dtype | None) -> torch.Tensor:
    if low is not None and tensor.dtype == low:
        return tensor.float()
    return tensor


def _narrowed(tensor: torch.Tensor, low: torch.dtype | None) -> torch.Tensor:
    if low is not None and tensor.dtype == torch.float32:
        return tensor.to(low)
    return tensor
