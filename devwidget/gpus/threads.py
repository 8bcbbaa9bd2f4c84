"""Threads that are started while a simulation runs belong to it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from devwidget.capture.interrupts import Lock
from devwidget.capture.patching.mode_stack import dispatch_modes
from devwidget.capture.patching.thread_starts import pool_tasks, thread_starts
from devwidget.capture.undo import Undo
from devwidget.gpus import dispatch_mode
from devwidget.gpus.dispatch_mode import VirtualMode
from devwidget.gpus.patching import Patches

GRACE_S = 0.5
"""How long the end of a simulation waits for its threads."""
_running: dict[threading.Thread, VirtualMode] = {}
_lock = Lock()
_is_simulated = False


def install_thread_modes(patches: Patches) -> None:
    """Have every new thread and task enter a mode of its own, and threads of an earlier simulation go on in this one."""
    patches.undo.add_step(_switch_threads, False)
    _switch_threads(True)
    thread_starts(lambda: _run_simulated, patches.undo)
    pool_tasks(lambda: _run_simulated, patches.undo)


@_lock
def _switch_threads(on: bool) -> None:
    global _is_simulated
    _is_simulated = on
    for mode in _running.values():
        (dispatch_mode.reactivate_mode if on else dispatch_mode.deactivate_mode)(mode)


@contextlib.contextmanager
def _run_simulated() -> Iterator[None]:
    """Run the calling thread in the simulation, if that has not ended before the thread began."""
    with Undo() as undo:
        _join_simulation(threading.current_thread(), undo)
        yield


@_lock
def _join_simulation(thread: threading.Thread, undo: Undo) -> None:
    if _is_simulated and not any(isinstance(mode, VirtualMode) for mode in dispatch_modes()):
        undo.add_step(_running.pop, thread, None)
        # Modes are kept per thread.
        _running[thread] = undo.enter_context(dispatch_mode.new_mode())


def wait_for_threads() -> None:
    """Let replicas that Ctrl-C has left alone end in their simulation: torch for CUDA aborts where a virtual GPU is no more."""
    until = time.monotonic() + GRACE_S
    # A copy: threads that end meanwhile leave the dictionary.
    for thread in list(_running):
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
