"""Threads that are started while a simulation runs belong to it; those that outlive it do nothing until the next one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from devwidget.capture.patching.threads import pool_tasks, thread_starts
from devwidget.simulator.operators import mode_without_values
from devwidget.simulator.operators.dispatch_mode import VirtualMode
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import dispatch_modes

GRACE_S = 0.5
"""How long the end of a simulation waits for its threads."""
_running: dict[threading.Thread, VirtualMode] = {}
_lock = threading.RLock()
_is_simulated = False


def install(patches: Patches) -> None:
    """Have every new thread and task enter a mode of its own, and threads of an earlier simulation go on in this one."""
    global _is_simulated
    patches.on_undo(_rest)
    with _lock:
        _is_simulated = True
        for mode in _running.values():
            mode_without_values.resume(mode)
    stack = contextlib.ExitStack()
    patches.on_undo(stack.close)
    stack.enter_context(thread_starts(lambda: _simulated))
    stack.enter_context(pool_tasks(lambda: _simulated))


def _rest() -> None:
    global _is_simulated
    with _lock:
        _is_simulated = False
        for mode in _running.values():
            mode_without_values.rest(mode)


@contextlib.contextmanager
def _simulated() -> Iterator[None]:
    """Run the calling thread in the simulation, if that has not ended before the thread began."""
    thread = threading.current_thread()
    with contextlib.ExitStack() as stack:
        with _lock:
            if _is_simulated and not any(isinstance(mode, VirtualMode) for mode in dispatch_modes()):
                stack.callback(_running.pop, thread, None)
                _running[thread] = stack.enter_context(mode_without_values.new_mode())  # modes are kept per thread
        yield


def wait_for_all() -> None:
    """Let replicas that Ctrl-C has left alone end in their simulation: torch for CUDA aborts where a virtual GPU is no more."""
    until = time.monotonic() + GRACE_S
    for thread in list(_running):
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
