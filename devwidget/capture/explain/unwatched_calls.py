"""Calls about which torch asks no function mode, so that their exception is read.

A number of no device that was made the current one, a file that is read to a device that is not there, and the state of a
random generator that is on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from devwidget.capture.explain.traceback_frames import innermost_user, traceback_frames
from devwidget.capture.faults import devices
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import locals_of, raw_site
from devwidget.capture.source_code.expressions import failing_call
from devwidget.records.device import CURRENT_SETTERS
from devwidget.records.errors import error_text, message

_READ = re.compile(r"Attempting to deserialize object on (?:a )?([A-Z]+) device(?: (\d+))?")


def meet_unwatched(state: RecordingState, error: BaseException) -> None:
    """Write down as a fault that an exception came of such a call.

    Only errors that came out of it count: the innermost line of the user asked for it, in words or by a `with`.
    """
    frames = traceback_frames(error.__traceback__)
    user = innermost_user(frames)
    if user is None or not isinstance(error, Exception):
        return
    found = _READ.match(message(error))
    if found is not None:
        requested = found[1].lower() + (f":{found[2]}" if found[2] else "")
        devices.report_absent(state, "load", raw_site(user), requested, error_text(error))
    for func, args in _requests(user, frames[-1]):
        devices.handle_failure(FailedCall(state, func, args, {}, error, user))
    if message(error).startswith("RNG state must be"):
        _meet_state_on_gpu(state, error, frames[frames.index(user) :])


def _meet_state_on_gpu(state: RecordingState, error: Exception, frames: Sequence[FrameType]) -> None:
    """The state of a random generator, which is kept on the CPU, was read to a GPU with the rest of a checkpoint.

    Args:
        frames: from the line of the user on: the outermost that has the tensor writes what the user calls it.
    """
    for frame in frames:
        call = failing_call(frame)
        if call is None:
            continue
        failed = FailedCall(state, call.func, call.args, call.kwargs, error, frame)
        strays = [tensor for tensor in failed.tensors() if tensor.device.type != "cpu"]
        if strays:
            failed.report("operands", strays, torch.device("cpu"), NOT_OURS)
            return


def _requests(user: FrameType, innermost: FrameType) -> list[tuple[Any, tuple[Any, ...]]]:
    """Calls that make a device current, on the line of the user or in the `__enter__` in which it failed."""
    if innermost.f_code.co_name == "__enter__":
        entered = locals_of(innermost).get("self")
        number = getattr(entered, "idx", None)
        if type(entered) is torch.cuda.device and type(number) is int:
            return [(torch.device, (number,))]
        return []
    call = failing_call(user)
    if call is None or getattr(call.func, "__name__", "") not in CURRENT_SETTERS:
        return []
    return [(call.func, (*call.args, *call.kwargs.values()))]
