"""Operands on devices that a call does not mix."""

from __future__ import annotations

import ast
import re
from types import FrameType
from typing import Any

from devwidget.capture.faults import healing
from devwidget.capture.faults.bypassed_hooks import RUN_FORWARD, find_bypassed_hook, moves_inputs
from devwidget.capture.faults.call_arguments import arguments
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.object_fields import is_among
from devwidget.capture.source_code.call_sites import call_text, line_of, raw_site
from devwidget.capture.source_code.statements import statement_text
from devwidget.records.device import KINDS, PLACING_METHODS
from devwidget.records.errors import message
from devwidget.records.syntax import is_inplace, parsed_expression, parsed_statement

_DEVICE_WORDS = re.compile(
    rf"same device|expected (all tensors|device)|on (the )?(cpu|{'|'.join(KINDS)}|meta)\b|device type|(weight|bias|hidden) type"
    r"|\bCPU\b.*\btensor",
    re.IGNORECASE,
)

_ON_HOST = frozenset({"batch_sizes", "lengths"})
"""Arguments that belong on the CPU, wherever the others are."""


def handle_failure(call: FailedCall) -> Any:
    """Repair by moving the misplaced tensors to their partners. If that works, the exception was about devices, whatever its
    text.
    """
    tensors = call.tensors()
    target = healing.target_device(call.name, tensors, call.state)
    if target is None:
        return NOT_OURS
    if call.name == "__getitem__" and _is_moved_on(call.frame):
        target = tensors[0].device  # the rows are moved; a large table stays on the host
    on_host = [tensor for name, tensor in arguments(call.func, call.args, call.kwargs) if name in _ON_HOST]
    strays = [tensor for tensor in healing.strays(tensors, target, call.name) if not is_among(tensor, on_host)]
    home = target
    if is_inplace(call.name) and tensors[0].dim():
        home = tensors[0].device  # it must be written where it is, though it may be the one that is astray
    if home == target:
        moved = strays
    else:
        moved = [tensor for tensor in tensors if tensor.device != home]
    out = call.again_moved(moved, home)
    if out is not NOT_OURS or _DEVICE_WORDS.search(message(call.error)):
        bypassed = find_bypassed_hook(call.frame, lambda module: moves_inputs(module, target), RUN_FORWARD)
        call.report("operands", strays, target, out, bypassed)
    return out


def _is_moved_on(frame: FrameType | None) -> bool:
    """Return whether the line of a frame moves the result of its running call: `table[index].to(device)`."""
    raw = raw_site(frame)
    if raw is None:
        return False
    wanted = parsed_expression(call_text(raw))
    statement = parsed_statement(statement_text(raw.code.co_filename, line_of(raw)))
    if wanted is None or statement is None:
        return False
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(value=moved, attr=name)) if name in PLACING_METHODS:
                if ast.dump(moved) == ast.dump(wanted):
                    return True
    return False
