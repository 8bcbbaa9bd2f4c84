"""Faults of a program that compares devices itself: `assert x.device == self.mask.device`. The tensors are in its frame."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FrameType, FunctionType, SimpleNamespace

import torch

from devwidget.capture.explain.traceback_frames import traceback_frames
from devwidget.capture.faults import healing
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.object_fields import find_class_attribute, is_exactly
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.source_files import function_of, read_file
from devwidget.capture.tensors import DEVICE, is_tensor
from devwidget.records.errors import error_text
from devwidget.records.fault_details import Compared
from devwidget.records.syntax import parsed_expression

_AGREE, _DIFFER = (ast.Eq, ast.Is), (ast.NotEq, ast.IsNot)


def meet_own_check(state: RecordingState, error: BaseException, frames: Sequence[FrameType] = ()) -> None:
    """Record a fault: the program found two devices where it requires one.

    Only the line that raised counts. What an exception handler or a caller raises says nothing about tensors.
    """
    frames = frames or traceback_frames(error.__traceback__)
    is_known = any(fault.error == error_text(error) for fault in state.log.faults)
    if not frames or not isinstance(error, Exception) or is_known:
        return
    frame = frames[-1]
    scope, name = Scope(frame), frame.f_code.co_name
    check = SimpleNamespace(__name__="assert" if name.startswith("<") else name)
    for written in _compared(frame):
        sides = [_written_out(side, scope) for side in written]
        answers = list(map(scope.value, sides))
        are_devices = all(is_exactly(answer, (DEVICE, str)) for answer in answers)
        if not are_devices or answers[0] == answers[1]:
            continue
        tensors = _tensors_asked(scope, sides)
        call = FailedCall(state, check, (), tensors, error, frame)
        target = healing.target_device(call.name, call.tensors(), state)
        if len(tensors) == 1:  # the device that the other side names
            (tensor,) = tensors.values()
            target = next((answer for answer in answers if type(answer) is DEVICE and answer != tensor.device), None)
        strays = [tensor for tensor in call.tensors() if tensor.device != target]
        if target is not None and strays:
            call.report("operands", strays, target, NOT_OURS, Compared())
            return


def _written_out(node: ast.expr, scope: Scope) -> ast.expr:
    """Return `graph.edges.device` for `graph.device`, a property that returns `self.edges.device`."""
    if not isinstance(node, ast.Attribute):
        return node
    text = f"{ast.unparse(_written_out(node.value, scope))}.{node.attr}"
    returned = _returned_by_property(scope.value(node.value), node.attr)
    if returned.startswith("self."):
        text = ast.unparse(node.value) + returned.removeprefix("self")
    return parsed_expression(text) or node


def _returned_by_property(owner: object, name: str) -> str:
    """Return the attributes of `self` that a property of one line reads; "" for one that would have to run."""
    found = find_class_attribute(type(owner), name)
    getter = found.fget if type(found) is property else None
    function = function_of(getter.__code__) if type(getter) is FunctionType else None
    match function.body if function is not None else ():
        case [ast.Return(value=ast.Attribute() as result)] | [ast.Expr(), ast.Return(value=ast.Attribute() as result)]:
            return ast.unparse(result)
    return ""


def _tensors_asked(scope: Scope, sides: Sequence[ast.expr]) -> dict[str, torch.Tensor]:
    """Return the tensors whose `x.device` or `x.device.type` is compared, with their expressions on the line."""
    found = {}
    for side in sides:
        match side:
            case (
                ast.Attribute(value=ast.Attribute(value=owner, attr="device"), attr="type")
                | ast.Attribute(value=owner, attr="device")
            ):
                tensor = scope.value(owner)
                if is_tensor(tensor):
                    found[ast.unparse(owner)] = tensor
    return found


def _compared(frame: FrameType) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield both sides of the equality that the raising line, or the `if` around it, requires."""
    for node in read_file(frame.f_code.co_filename).statements:
        match node:
            case ast.Assert() if _is_at(node, frame.f_lineno):
                yield from _sides(node.test, _AGREE)
            case ast.If() if any(isinstance(each, ast.Raise) and _is_at(each, frame.f_lineno) for each in node.body):
                yield from _sides(node.test, _DIFFER)


def _is_at(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _sides(test: ast.expr, operators: tuple[type[ast.cmpop], ...]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], operators):
            yield node.left, node.comparators[0]
