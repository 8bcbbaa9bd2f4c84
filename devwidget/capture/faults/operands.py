"""Operands on devices that a call does not mix."""

from __future__ import annotations

import re
from typing import Any

from devwidget.capture.faults import healing
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall

_DEVICE_WORDS = re.compile(
    r"same device|expected (all tensors|device)|on (the )?(cpu|cuda|xpu|mps|meta)\b|device type|weight type|\bCPU\b.*\btensor",
    re.IGNORECASE,
)


def meet(call: FailedCall) -> Any:
    """Heal by moving the strays to their partners. An exception that this cures was one of devices, whatever it said."""
    tensors = call.tensors()
    target = healing.target_device(call.name, tensors, call.state)
    if target is None:
        return NOT_OURS
    strays = healing.strays(tensors, target)
    written = healing.is_inplace(call.name) and tensors[0].dim() and tensors[0].device != target
    if written:  # it must be written where it is, though it is the one that is astray
        out = call.again_moved([t for t in tensors if t.device != tensors[0].device], tensors[0].device)
    else:
        out = call.again_moved(strays, target)
    if out is not NOT_OURS or _DEVICE_WORDS.search(str(call.error)):
        call.report("operands", strays, target, out)
    return out
