"""Other threads of the process: which of them runs code of the program, which could notice what we do."""

from __future__ import annotations

import linecache
import re
import sys
import threading
import traceback
from types import FrameType, FunctionType, ModuleType
from typing import Any

from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.call_sites import is_library, locals_of

_WAITS = re.compile(
    r"\b_?(acquire|wait|get|select|poll|recv\w*|accept|sleep|read\w*|join|device|proxy|wait_for_tstate_lock|waitpid)\("
)
"""Calls in which threads of libraries wait for work: locks, queues, sockets, pipes, the messages of a kernel."""
_SERVES = "/torch/utils/data/_utils/"
"""The threads of a DataLoader only carry batches that somebody else has asked for."""


def running_thread() -> str:
    """The name of another thread that runs code of the program; "" if all others wait for work.

    A thread waits for work if each of its frames stands in library code that knows nothing of torch, and the innermost on a
    line that waits: for a lock, a queue, a socket, a time. So do the threads of a kernel (heartbeat, output, history,
    subshells), of tqdm, pytest-timeout, tensorboard and debuggers, and the idle workers of pools. A thread runs if a function
    of the program, or of a library that has imported torch, is among its frames: also when it waits just now, for a batch or
    for the interpreter's lock, since nobody knows when it goes on; but one that has joined this thread goes on when this one
    has ended. A timer runs if what it will call is the program's.
    Threads that run no Python, such as those of torch's kernels, have no frames and notice nothing.
    """
    known, frames = {thread.ident: thread for thread in threading.enumerate()}, sys._current_frames()
    frames.pop(threading.get_ident(), None)  # a frame that refers to itself lives until the collector comes
    for ident, frame in frames.items():
        thread = known.get(ident)
        if not _waits_for_us(frame) and (not _waits(frame) or _calls_program(thread)):
            return thread.name if thread is not None else str(ident)
    return ""


def _waits(frame: FrameType) -> bool:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0)  # a frame that is just being entered has no line
    return bool(_WAITS.search(line)) and not any(_is_programs(each) for each, _ in traceback.walk_stack(frame))


def _waits_for_us(frame: FrameType | None) -> bool:
    """Whether a thread has joined the one that asks, and so goes on when that has ended."""
    while frame is not None and is_library(frame.f_code.co_filename):
        if frame.f_code is threading.Thread.join.__code__:
            names = locals_of(frame)
            return names.get("self") is threading.current_thread() and names.get("timeout") is None
        frame = frame.f_back
    return False


def _is_programs(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not is_library(file) or (_SERVES not in file and _knows_torch(frame.f_globals))


def _knows_torch(names: dict[str, Any]) -> bool:
    return any(is_a(value, ModuleType) and value.__name__.partition(".")[0] == "torch" for value in list(names.values())) or (
        str(names.get("__name__", "")).partition(".")[0] == "torch"
    )


def _calls_program(thread: threading.Thread | None) -> bool:
    """Whether it is a timer of the program, which waits only until then."""
    function = getattr(thread, "function", None) if is_a(thread, threading.Timer) else None
    return is_a(function, FunctionType) and not is_library(function.__code__.co_filename)
