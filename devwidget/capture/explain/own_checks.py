"""A program that compares devices itself, `assert x.device == self.mask.device`, and gives up: the tensors are in its frame."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

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
    for sides in _find_disagreeing(frame):
        name = frame.f_code.co_name
        check = SimpleNamespace(__name__="assert" if name.startswith("<") else name)
        tensors = {side.name: side.tensor for side in sides if side.tensor is not None}
        call = FailedCall(state, check, (), tensors, error, frame)
        target = _find_target(call, sides)
        strays = [tensor for tensor in tensors.values() if tensor.device != target]
        if target is not None and strays:
            call.report("operands", strays, target, NOT_OURS, FaultDetails(problem=PROBLEM))
            return


def _find_disagreeing(frame: FrameType) -> Iterator[list[_Side]]:
    """The comparisons of what tensors are on whose sides differ."""
    scope = Scope(frame)
    for pair in _compared(frame):
        left, right = sides = [_read_side(scope, node) for node in pair]
        has_tensor = left.tensor is not None or right.tensor is not None
        is_known = left.answer is not UNKNOWN and right.answer is not UNKNOWN
        if has_tensor and is_known and left.answer != right.answer:
            yield sides


class _Side(NamedTuple):
    """One side of a comparison: the tensor that it asks, how the line writes that, and what it answers."""

    name: str
    tensor: torch.Tensor | None
    answer: Any


def _find_target(call: FailedCall, sides: list[_Side]) -> torch.device | None:
    """The device that a side names, else that of the tensor that decides."""
    for side in sides:
        if side.tensor is None and type(side.answer) is DEVICE:
            return side.answer
    return healing.target_device(call.name, list(call.tensors()), call.state)


def _compared(frame: FrameType) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Both sides of what the raising line, or the `if` around it, wants to be equal."""
    tree = parsed("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)), deep=True)
    for node in ast.walk(tree) if tree is not None else ():
        match node:
            case ast.Assert() if _is_at(node, frame.f_lineno):
                yield from _sides(node.test, _AGREE)
            case ast.If() if any(isinstance(each, ast.Raise) and _is_at(each, frame.f_lineno) for each in node.body):
                yield from _sides(node.test, _DIFFER)


def _is_at(node: ast.stmt, line: int) -> bool:
    """Whether a statement has a line."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _sides(test: ast.expr, operators: tuple[type[ast.cmpop], ...]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], operators):
            yield node.left, node.comparators[0]


def _read_side(scope: Scope, node: ast.expr) -> _Side:
    """What `x.device`, `x.device.type` or `x.get_device()` asks and answers, or the value of another expression."""
    match node:
        case ast.Attribute(value=inner, attr="type" | "index" as name):
            asked = _read_side(scope, inner)
            if type(asked.answer) is DEVICE:
                answer = getattr(asked.answer, name)
            else:
                answer = UNKNOWN
            return _Side(asked.name, asked.tensor, answer)
        case ast.Call(func=ast.Attribute() as method, args=[]) | (ast.Attribute() as method):
            tensor = scope.value(method.value)
            if is_tensor(tensor) and method.attr in ("device", "is_cuda", "get_device"):
                return _Side(ast.unparse(method.value), tensor, _answer(tensor, method.attr))
    value = scope.value(node)
    return _Side("", None, value if type(value) in (DEVICE, str) else UNKNOWN)


def _answer(tensor: torch.Tensor, question: str) -> Any:
    match question:
        case "device":
            return tensor.device
        case "is_cuda":
            return tensor.is_cuda
    return tensor.device.index
