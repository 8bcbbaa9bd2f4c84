"""A program that compares devices itself, `assert x.device == self.mask.device`, and gives up: the tensors are in its frame."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.explain.traceback_frames import traceback_frames
from devwidget.capture.faults import healing
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.expressions import UNKNOWN, Scope
from devwidget.capture.tensors import DEVICE, is_tensor
from devwidget.records.errors import error_text
from devwidget.records.syntax import parsed
from devwidget.records.trace import FaultDetails

PROBLEM = "compared"
_AGREE, _DIFFER = (ast.Eq, ast.Is), (ast.NotEq, ast.IsNot)


class _Check:
    """Stands for the function that checks."""

    def __init__(self, frame: FrameType) -> None:
        name = frame.f_code.co_name
        self.__name__ = "assert" if name.startswith("<") else name


def own_check(context: ErrorContext) -> None:
    """The same for an exception that is explained."""
    _meet(context.state, context.error, context.frames[-1] if context.frames else None)


def meet_own_check(state: RecordingState, error: BaseException) -> None:
    """Write down as a fault that the program found two devices where it wants one.

    Only the line that raised counts: what an exception handler or a caller makes of it says nothing of tensors.
    """
    if not any(fault.error == error_text(error) for fault in state.log.faults):
        _meet(state, error, next(reversed(traceback_frames(error.__traceback__)), None))


def _meet(state: RecordingState, error: BaseException, frame: FrameType | None) -> None:
    if frame is None or not isinstance(error, Exception):
        return
    scope = Scope(frame)
    for left, right in _compared(frame):
        sides = [_read(scope, left), _read(scope, right)]
        given = {ast.unparse(node): tensor for node, tensor, _ in sides if tensor is not None}
        if sides[0][2] == sides[1][2] or UNKNOWN in (sides[0][2], sides[1][2]) or not given:
            continue
        call = FailedCall(state, _Check(frame), (), given, error, frame)
        tensors = list(given.values())
        named = [value for _, tensor, value in sides if tensor is None and type(value) is DEVICE]
        target = named[0] if named else healing.target_device(call.name, tensors, state)
        strays = [tensor for tensor in tensors if tensor.device != target]
        if target is not None and strays:
            call.report("operands", strays, target, NOT_OURS, FaultDetails(problem=PROBLEM))
            return


def _compared(frame: FrameType) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Both sides of what the raising line, or the `if` around it, wants to be equal."""
    tree = parsed("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)), deep=True)
    line = frame.f_lineno
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or line):
            yield from _sides(node.test, _AGREE)
        elif isinstance(node, ast.If) and any(isinstance(each, ast.Raise) and each.lineno <= line <= (each.end_lineno or line)
                                              for each in node.body):  # fmt: skip
            yield from _sides(node.test, _DIFFER)


def _sides(test: ast.expr, operators: tuple[type[ast.cmpop], ...]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], operators):
            yield node.left, node.comparators[0]


def _read(scope: Scope, node: ast.expr) -> tuple[ast.expr, torch.Tensor | None, Any]:
    """The tensor that `x.device`, `x.device.type` or `x.get_device()` asks, with its name; and what it answers."""
    if isinstance(node, ast.Attribute) and node.attr in ("type", "index"):
        owner, tensor, device = _read(scope, node.value)
        return owner, tensor, getattr(device, node.attr) if type(device) is DEVICE else UNKNOWN
    method = node.func if isinstance(node, ast.Call) and not node.args else node
    if isinstance(method, ast.Attribute) and method.attr in ("device", "is_cuda", "get_device"):
        tensor = scope.value(method.value)
        if is_tensor(tensor):
            answers = {"device": tensor.device, "is_cuda": tensor.is_cuda, "get_device": tensor.device.index}
            return method.value, tensor, answers[method.attr]
    value = scope.value(node)
    return node, None, value if type(value) in (DEVICE, str) else UNKNOWN
