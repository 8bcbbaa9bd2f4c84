"""Find other threads of the process that run code of the program and could notice a trial."""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType, ModuleType

from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.stack import Owner, is_users_code, locals_of, stack

_SERVES = "/torch/utils/data/_utils/", "/torch/_inductor/compile_worker/"
"""Threads of a DataLoader and of compiler pools, which only do what other code requests."""


def running_thread() -> str:
    """Return the name of another thread that runs code of the program; "" if all others are idle.

    A thread runs it if one of its frames belongs to the program or to a library that has imported torch. A thread that is
    blocked, on a batch or on the interpreter's lock, counts too, since it may continue at any time; one that has joined this
    thread does not. All other threads are in library code without torch: a kernel's (heartbeat, output, history, subshells),
    tqdm, pytest-timeout, tensorboard, debuggers, and idle pool workers. Threads that run no Python, such as torch's kernels,
    have no frames and notice nothing.
    """
    known, frames = {thread.ident: thread for thread in threading.enumerate()}, sys._current_frames()
    frames.pop(threading.get_ident(), None)  # a frame that refers to itself lives until the collector comes
    for ident, frame in frames.items():
        thread = known.get(ident)
        if any(_is_programs(each) for each, _ in traceback.walk_stack(frame)) and not _waits_for_us(frame):
            if thread is None:
                return str(ident)
            return thread.name
    return ""


def _waits_for_us(frame: FrameType) -> bool:
    for owner, each in stack(frame):
        if owner is Owner.USER:
            return False
        if each.f_code is threading.Thread.join.__code__:
            names = locals_of(each)
            return names["self"] is threading.current_thread() and names["timeout"] is None
    return False


def _is_programs(frame: FrameType) -> bool:
    if is_users_code(frame.f_code):
        return True
    if any(part in frame.f_code.co_filename for part in _SERVES):
        return False
    modules = [value.__name__ for value in list(frame.f_globals.values()) if is_a(value, ModuleType)]
    return any(name.partition(".")[0] == "torch" for name in [*modules, str(frame.f_globals.get("__name__"))])
