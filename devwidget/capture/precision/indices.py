"""Indices, class targets and masks whose dtype the operator does not take."""

from __future__ import annotations

import re
from typing import Any

import torch

from devwidget.capture.faults.call_arguments import arguments
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.recording.event_log import format_dtype
from devwidget.capture.tensors import is_parameter
from devwidget.records.errors import message
from devwidget.records.fault_details import WrongDtype

_INDEX = re.compile(
    r"'indices' to have one of the following scalar types|tensors used as indices must be|Expected dtype int.* for index"
    r"|index tensor of type LongTensor|expected scalar type Long but|nll_loss\w*\" not implemented|Expected indices to be Long"
    r"|for indices, but"
)
_MASK = re.compile(r"boolean masks?\b|to be a boolean tensor|BoolTensor for mask|expected BoolTensor", re.IGNORECASE)
_NAMES = ("index", "indices", "target", "mask", "attn_mask", "condition")


def handle_failure(call: FailedCall) -> Any:
    """Repair by casting the index to int64, the mask to bool."""
    text = message(call.error)
    if _MASK.search(text) or ("Expected attn_mask dtype" in text and _has_integer_mask(call)):
        wanted = torch.bool
    elif _INDEX.search(text):
        wanted = torch.int64
    else:
        return NOT_OURS
    stray = _find_index(call, wanted)
    if stray is None:
        return NOT_OURS
    out = call.again_changing([stray], lambda tensor: tensor.to(wanted))
    call.report("dtype", [stray], stray.device, out, WrongDtype(format_dtype(wanted), has_gradient=stray.requires_grad))
    return out


def _has_integer_mask(call: FailedCall) -> bool:
    named = dict(arguments(call.func, call.args, call.kwargs))
    return "attn_mask" in named and not named["attn_mask"].is_floating_point()


def is_about_indices(text: str) -> bool:
    """Return whether the message of an exception is about the dtype of an index or a mask."""
    return _INDEX.search(text) is not None or _MASK.search(text) is not None


def _find_index(call: FailedCall, wanted: torch.dtype) -> torch.Tensor | None:
    """Return the argument with such a name and another dtype, else the only candidate other than parameters."""
    others = [(name, each) for name, each in arguments(call.func, call.args, call.kwargs) if each.dtype != wanted]
    named = [each for name, each in others if name.partition("[")[0] in _NAMES]
    candidates = named or [each for _, each in others if not is_parameter(each)]
    if len(candidates) == 1:
        return candidates[0]
    return None
