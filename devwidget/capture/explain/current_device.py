"""A number of no device that was made the current one: torch asks no function mode about that, so the exception is read."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from devwidget.capture.explain.traceback_frames import traceback_frames
from devwidget.capture.faults import devices
from devwidget.capture.faults.failed_call import FailedCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import is_library, locals_of
from devwidget.capture.source_code.expressions import failing_call
from devwidget.records.device import CURRENT_SETTERS


def meet_current(state: RecordingState, error: BaseException) -> None:
    """Write down as a fault that an exception came of making a device current that is not there.

    Only errors that came out of such a call count: the innermost line of the user asked for it, in words or by a `with`.
    """
    if not isinstance(error, Exception):
        return
    frames = traceback_frames(error.__traceback__)
    user = next((frame for frame in reversed(frames) if not is_library(frame.f_code.co_filename)), None)
    if user is None:
        return
    for func, args in _requests(user, frames[-1]):
        devices.meet(FailedCall(state, func, args, {}, error, user))


def _requests(user: FrameType, innermost: FrameType) -> list[tuple[Any, tuple[Any, ...]]]:
    """Calls that make a device current, on the line of the user or in the `__enter__` in which it failed."""
    if innermost.f_code.co_name == "__enter__":
        entered = locals_of(innermost).get("self")
        number = getattr(entered, "idx", None)
        return [(torch.device, (number,))] if type(entered) is torch.cuda.device and type(number) is int else []
    call = failing_call(user)
    if call is None or getattr(call.func, "__name__", "") not in CURRENT_SETTERS:
        return []
    return [(call.func, (*call.args, *call.kwargs.values()))]
