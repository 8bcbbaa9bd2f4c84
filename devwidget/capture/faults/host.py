"""Tensors on an accelerator where only the CPU is valid: numpy, lengths of packed sequences, pinned memory."""

from __future__ import annotations

import re
from typing import Any

import torch

from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.healing import is_accelerator
from devwidget.records.errors import message

_HOST_WORDS = re.compile(r"to numpy|1D CPU int64 tensor|cannot pin|must be (on|a) (the )?cpu", re.IGNORECASE)


def handle_failure(call: FailedCall) -> Any:
    """Repair by moving to the CPU the first argument with which the call succeeds. A tensor to be pinned is not moved."""
    if not _HOST_WORDS.search(message(call.error)):
        return NOT_OURS
    cpu = torch.device("cpu")
    candidates = [tensor for tensor in call.tensors() if is_accelerator(tensor.device)]
    if not call.state.heal:  # nothing can be tried: the last one it is
        candidates = candidates[-1:]
    if candidates and call.name == "pin_memory":
        out: Any = NOT_OURS
        if call.state.heal:
            out = candidates[0]
        call.report("operands", candidates, cpu, out)
        return out
    for stray in reversed(candidates):  # the data comes first, what belongs on the host after it
        out = call.again_moved([stray], cpu)
        if out is not NOT_OURS or stray is candidates[0]:
            call.report("operands", [stray], cpu, out)
            return out
    return NOT_OURS
