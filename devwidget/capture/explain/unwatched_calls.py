"""Faults in calls that function modes do not see.

These are: making a missing device current, loading a file to a missing device, and setting a random generator's state from a
GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from devwidget.capture.devices import list_devices
from devwidget.capture.explain.traceback_frames import innermost_user, site_in_worker, traceback_frames
from devwidget.capture.faults import devices
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.recording.descriptions import fault_at
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import locals_of, raw_site, to_site
from devwidget.capture.source_code.expressions import failing_call
from devwidget.records.device import CUDA, CURRENT_SETTERS
from devwidget.records.errors import error_text, message
from devwidget.records.fault_details import InWorker

_READ = re.compile(r"Attempting to deserialize object on (?:a )?([A-Z]+) device(?: (\d+))?")

IN_LOADER = re.compile(r"Caught \w+ in DataLoader worker process")
_FORKED = "Cannot re-initialize CUDA in forked subprocess"


def meet_unwatched(state: RecordingState, error: BaseException, frames: Sequence[FrameType] = ()) -> None:
    """Record a fault if such a call raised the exception.

    Only errors raised by the call itself count: the innermost line of the user requested it, directly or with a `with`.
    """
    frames = frames or traceback_frames(error.__traceback__)
    user = innermost_user(frames)
    if user is None or not isinstance(error, Exception):
        return
    found = _READ.match(message(error))
    if found is not None:
        requested = found[1].lower() + (f":{found[2]}" if found[2] else "")
        devices.report_absent(state, "load", raw_site(user), requested, error_text(error))
    _meet_worker(state, error, user)
    for func, args in _requests(user, frames[-1]):
        devices.handle_absent_device(FailedCall(state, func, args, {}, error, user))
    if message(error).startswith("RNG state must be"):
        _meet_state_on_gpu(state, error, frames[frames.index(user) :])


def _meet_worker(state: RecordingState, error: Exception, loop: FrameType) -> None:
    """Report a forked worker of a `DataLoader` that uses CUDA. Its variables are lost, but not the text of its traceback."""
    words = message(error)
    site = site_in_worker(words) if IN_LOADER.search(words) and _FORKED in words else None
    if site is None:
        return
    fault = fault_at(
        state.tracker,
        "device",
        site.function,
        site,
        requested=CUDA.type,
        error=error_text(error),
        available=list_devices(),
        detail=InWorker(to_site(raw_site(loop))),
    )
    state.log.log_fault(fault)


def _meet_state_on_gpu(state: RecordingState, error: Exception, frames: Sequence[FrameType]) -> None:
    """Report a random generator's state, which must be on the CPU, that was loaded to a GPU with the rest of a checkpoint.

    Args:
        frames: frames from the user's line on. The outermost one with the tensor has the user's name for it.
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
    """Return calls that make a device current, on the user's line or in the `__enter__` that failed."""
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
