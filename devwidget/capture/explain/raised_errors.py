"""Faults that function modes do not see, read from the exception: for an explanation, and at the end of a recording.

These are: making a missing device current, loading a file to a missing device, setting a random generator's state from a GPU,
workers of a loader that use CUDA, float16 gradients in a GradScaler, and programs that compare devices themselves.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType, SimpleNamespace
from typing import Any

import torch

from devwidget.capture.devices import list_devices
from devwidget.capture.explain.error_context import ErrorContext, failed_calls
from devwidget.capture.explain.traceback_frames import IN_LOADER, site_in_worker
from devwidget.capture.faults import devices, healing
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.faults.owners import find_built
from devwidget.capture.object_fields import is_exactly
from devwidget.capture.precision import region_before
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.source_code.expressions import Scope, failing_call
from devwidget.capture.source_code.source_files import read_file
from devwidget.capture.source_code.stack import locals_of, user_frames
from devwidget.capture.source_code.statements import site_at
from devwidget.capture.tensors import DEVICE, is_optimizer, is_tensor
from devwidget.records.device import CUDA, CURRENT_SETTERS
from devwidget.records.fault_details import Compared, HalfGradients, InWorker
from devwidget.records.site import cells
from devwidget.records.syntax import arguments_in, name_of_called, parsed_statement

_READ = re.compile(r"Attempting to deserialize object on (?:a )?([A-Z]+) device(?: (\d+))?")
_FORKED = "Cannot re-initialize CUDA in forked subprocess"
_SCALER = SimpleNamespace(__name__="unscale_")
_AGREE, _DIFFER = (ast.Eq, ast.Is), (ast.NotEq, ast.IsNot)


# Calls that function modes do not see.


def unwatched_device(context: ErrorContext) -> None:
    """Report a device that is missing. Only errors raised by the call itself count: the innermost line of the user requested
    it, directly or with a `with`.
    """
    state, user, error = context.state, context.user, context.error
    if user is None or not isinstance(error, Exception):
        return
    found = _READ.match(context.message)
    if found is not None:
        requested = ":".join(filter(None, found.groups())).lower()
        devices.report_absent(state, "load", raw_site(user), requested, context.error_text)
    func, args = _find_request(user, context.frames[-1])
    if func is not None:
        devices.handle_absent_device(FailedCall(state, func, args, {}, error, user))


def _find_request(user: FrameType, innermost: FrameType) -> tuple[Any, tuple[Any, ...]]:
    """Return the call that makes a device current, on the user's line or in the `__enter__` that failed."""
    if innermost.f_code.co_name == "__enter__":
        entered = locals_of(innermost).get("self")
        number = getattr(entered, "idx", None)
        if type(entered) is torch.cuda.device and type(number) is int:
            return torch.device, (number,)
        return None, ()
    call = failing_call(user)
    if call is None or getattr(call.func, "__name__", "") not in CURRENT_SETTERS:
        return None, ()
    return call.func, (*call.args, *call.kwargs.values())


def forked_worker(context: ErrorContext) -> None:
    """Report a forked worker of a `DataLoader` that uses CUDA. Its variables are lost, but not the text of its traceback."""
    words = context.message
    site = site_in_worker(words) if IN_LOADER.search(words) and _FORKED in words else None
    if site is None:
        return
    context.state.report_fault(
        "device",
        site.function,
        site,
        requested=CUDA.type,
        error=context.error_text,
        available=list_devices(),
        detail=InWorker(to_site(raw_site(context.user))),
    )


def state_on_gpu(context: ErrorContext) -> None:
    """Report a random generator's state, which must be on the CPU, that was loaded to a GPU with the rest of a checkpoint."""
    if not context.message.startswith("RNG state must be"):
        return
    for failed in reversed([*failed_calls(context)]):  # the outermost one with the tensor has the user's name for it
        strays = [tensor for tensor in failed.tensors() if tensor.device.type != "cpu"]
        if strays:
            failed.report("operands", strays, torch.device("cpu"), NOT_OURS)
            return


# A GradScaler that got float16 gradients.


def half_gradients(context: ErrorContext) -> None:
    """Report whose gradients they are, and which line created their optimizer."""
    state, user, error = context.state, context.user, context.error
    named = (locals_of(frame).get("optimizer") for frame in context.frames)
    optimizer = next((each for each in named if is_optimizer(each)), None)
    if optimizer is None or user is None or "unscale FP16 gradients" not in context.message:
        return
    halves = []
    for group in optimizer.param_groups:
        halves += [each for each in group["params"] if getattr(each.grad, "dtype", None) == torch.float16]
    if not halves:
        return
    outer = list(user_frames(user))
    files = [frame.f_code.co_filename for frame in outer]
    built = find_built(state.tracker, outer, optimizer)
    call = FailedCall(state, _SCALER, (), {"parameter": halves[0]}, error, user)
    call.report("dtype", halves[:1], halves[0].device, NOT_OURS, HalfGradients(len(halves), built, region_before(outer)))
    _blame_cast(state, [*files, *cells()])


def _blame_cast(state: RecordingState, files: Iterable[str]) -> None:
    """Blame the only line of a file or cell that casts to float16, where the line that is known casts nothing."""
    for file in files:
        casts = [node for node in read_file(file).statements if _casts(node)]
        if casts:
            break
    else:
        return
    faults = state.log.faults
    if len(casts) > 1 or not faults or not isinstance(faults[-1].detail, HalfGradients):
        return
    (operand,) = faults[-1].operands
    if operand.birth is None or not _casts(parsed_statement(operand.birth.text)):
        operand = dataclasses.replace(operand, birth=site_at(file, casts[0].lineno))
        faults[-1] = dataclasses.replace(faults[-1], operands=(operand,))


def _casts(statement: ast.AST | None) -> bool:
    """Return whether a simple statement calls `half()`, or another function with float16."""
    if statement is None or hasattr(statement, "body"):  # `with torch.autocast("cuda", dtype=torch.float16)` casts no weights
        return False
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and "autocast" not in ast.unparse(node.func):
            arguments = arguments_in(node)
            is_half = name_of_called(node) == "half" and not arguments
            if is_half or any(ast.unparse(each).endswith(("float16", "torch.half")) for each in arguments):
                return True
    return False


# Programs that compare devices themselves: `assert x.device == self.mask.device`. The tensors are in the frame.


def own_check(context: ErrorContext) -> None:
    """Report that the program found two devices where it requires one.

    Only the line that raised counts. What an exception handler or a caller raises says nothing about tensors.
    """
    state, error = context.state, context.error
    is_known = any(fault.error == context.error_text for fault in state.log.faults)
    if is_known or context.user is None or not isinstance(error, Exception):
        return
    frame = context.frames[-1]
    scope, name = Scope(frame), frame.f_code.co_name
    check = SimpleNamespace(__name__="assert" if name.startswith("<") else name)
    for sides in _compared(frame):
        answers = list(map(scope.value, sides))
        are_devices = all(is_exactly(answer, (DEVICE, str)) for answer in answers)
        if not are_devices or answers[0] == answers[1]:
            continue
        tensors = _tensors_asked(scope, sides)
        call = FailedCall(state, check, (), tensors, error, frame)
        target = healing.target_device(call.name, call.tensors(), state)
        if len(tensors) == 1:  # the device that the other side names
            (tensor,) = tensors.values()
            named = [answer for answer in answers if type(answer) is DEVICE]
            target = next((answer for answer in named if answer != tensor.device), None)
        strays = [tensor for tensor in call.tensors() if tensor.device != target]
        if target is not None and strays:
            call.report("operands", strays, target, NOT_OURS, Compared())
            return


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
            case ast.Assert(test=test) if _is_at(node, frame.f_lineno):
                operators: tuple[type[ast.cmpop], ...] = _AGREE
            case ast.If(test=test) if any(isinstance(each, ast.Raise) and _is_at(each, frame.f_lineno) for each in node.body):
                operators = _DIFFER
            case _:
                continue
        for part in ast.walk(test):
            if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], operators):
                yield part.left, part.comparators[0]


def _is_at(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


READERS = (unwatched_device, forked_worker, state_on_gpu, half_gradients, own_check)
"""What reads an exception for an explanation, and at the end of a recording."""
