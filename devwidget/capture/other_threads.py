"""Other threads of the process: which of them runs code of the program, which could notice what we do."""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType, ModuleType
from typing import Any

from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.stack import Owner, is_users_code, is_users_function, stack

_SERVES = "/torch/utils/data/_utils/", "/torch/_inductor/compile_worker/"
"""Threads of a DataLoader, and of a pool of compilers, only carry what somebody else has asked for."""


def running_thread() -> str:
    """The name of another thread that runs code of the program; "" if all others wait for work.

    A thread runs it if a function of the program, or of a library that has imported torch, is among its frames: also when it
    waits just now, for a batch or for the interpreter's lock, since nobody knows when it goes on; but one that has joined this
    thread goes on when this one has ended. A timer runs if what it will call is the program's. All others stand in library
    code that knows nothing of torch: those of a kernel (heartbeat, output, history, subshells), of tqdm, pytest-timeout,
    tensorboard and debuggers, and the idle workers of pools.
    Threads that run no Python, such as those of torch's kernels, have no frames and notice nothing.
    """
    known, frames = {thread.ident: thread for thread in threading.enumerate()}, sys._current_frames()
    frames.pop(threading.get_ident(), None)  # a frame that refers to itself lives until the collector comes
    for ident, frame in frames.items():
        thread = known.get(ident)
        if _calls_program(thread) or (_is_in_program(frame) and not _waits_for_us(frame)):
            if thread is not None:
                return thread.name
            return str(ident)
    return ""


def _is_in_program(frame: FrameType) -> bool:
    return any(_is_programs(each) for each, _ in traceback.walk_stack(frame))


def _waits_for_us(frame: FrameType | None) -> bool:
    """Whether a thread has joined the one that asks, and so goes on when that has ended."""
    for owner, each in stack(frame):
        if owner is Owner.USER:
            return False
        if each.f_code is threading.Thread.join.__code__:
            names = locals_of(each)
            return names.get("self") is threading.current_thread() and names.get("timeout") is None
    return False


def _is_programs(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return is_users_code(frame.f_code) or (not any(part in file for part in _SERVES) and _knows_torch(frame.f_globals))


def _knows_torch(names: dict[str, Any]) -> bool:
    return any(is_a(value, ModuleType) and value.__name__.partition(".")[0] == "torch" for value in list(names.values())) or (
        str(names.get("__name__", "")).partition(".")[0] == "torch"
    )


def _calls_program(thread: threading.Thread | None) -> bool:
    """Whether it is a timer of the program, which waits only until then."""
    if is_a(thread, threading.Timer):
        function = getattr(thread, "function", None)
    else:
        function = None
    return is_users_function(function)
