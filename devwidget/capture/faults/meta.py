"""Tensors without data that are moved, or mixed with tensors that have data."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.healing import is_accelerator
from devwidget.records.errors import message


def handle_failure(call: FailedCall) -> Any:
    """Repair with zeros in place of the data that was never loaded."""
    tensors = call.tensors()
    strays = [tensor for tensor in tensors if tensor.is_meta]
    if not strays or "meta" not in message(call.error):
        return NOT_OURS
    real = [tensor.device for tensor in tensors if not tensor.is_meta]
    target = next(filter(is_accelerator, real), next(iter(real), torch.device("cpu")))
    out = call.again_changing(strays, lambda tensor: torch.zeros_like(tensor, device=target))
    call.report("meta", strays, target, out)
    return out
