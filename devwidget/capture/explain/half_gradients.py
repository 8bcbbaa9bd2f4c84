"""A GradScaler that got float16 gradients: whose they are, and which line created their optimizer."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Sequence
from types import FrameType, SimpleNamespace

import torch

from devwidget.capture.explain.traceback_frames import innermost_user, traceback_frames
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.object_fields import class_name, is_a
from devwidget.capture.precision.autocast_regions import region_before
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.source_files import read_file
from devwidget.capture.source_code.stack import user_frames
from devwidget.records.errors import message
from devwidget.records.fault_details import HalfGradients
from devwidget.records.site import Site, cells
from devwidget.records.syntax import arguments_in, name_of_called, parsed_statement

_SCALER = SimpleNamespace(__name__="unscale_")


def meet_half_gradients(state: RecordingState, error: BaseException, frames: Sequence[FrameType] = ()) -> None:
    """Record a fault if `GradScaler.unscale_` or `step` raised the exception."""
    if not isinstance(error, ValueError) or "unscale FP16 gradients" not in message(error):
        return
    frames = frames or traceback_frames(error.__traceback__)
    user = innermost_user(frames)
    named = (locals_of(frame).get("optimizer") for frame in frames)
    optimizer = next((each for each in named if is_a(each, torch.optim.Optimizer)), None)
    if user is None or optimizer is None:
        return
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    halves = [each for each in parameters if each.grad is not None and each.grad.dtype == torch.float16]
    if not halves:
        return
    outer = list(user_frames(user))
    detail = HalfGradients(len(halves), _line_of(outer, optimizer), region_before(outer))
    call = FailedCall(state, _SCALER, (), {"parameter": halves[0]}, error, user)
    call.report("dtype", halves[:1], halves[0].device, NOT_OURS, detail)
    _add_cast(state, [*(frame.f_code.co_filename for frame in outer), *cells()])


def _add_cast(state: RecordingState, files: Iterable[str]) -> None:
    """Blame the line of a file or cell that casts to float16, where the line that is known casts nothing."""
    cast, faults = _find_cast(files), state.log.faults
    if cast is None or not faults or not isinstance(faults[-1].detail, HalfGradients):
        return
    (operand,) = faults[-1].operands
    if operand.birth is None or not _casts(parsed_statement(operand.birth.text)):
        faults[-1] = dataclasses.replace(faults[-1], operands=(dataclasses.replace(operand, birth=cast),))


def _find_cast(files: Iterable[str]) -> Site | None:
    """Return the only cast of the first file that has any."""
    for file in files:
        casts = [node for node in read_file(file).statements if _casts(node)]
        if casts:
            return statements.site_at(file, casts[0].lineno) if len(casts) == 1 else None
    return None


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


def _line_of(frames: Iterable[FrameType], optimizer: torch.optim.Optimizer) -> Site | None:
    """Return the line that created an optimizer: of a living frame, else the only one of the frames' files."""
    frames = list(frames)
    found = find_construction(frames, optimizer)
    sites = (statements.made_by(frame.f_code.co_filename, class_name(type(optimizer))) for frame in frames)
    return found or next((site for site in sites if site is not None), None)
