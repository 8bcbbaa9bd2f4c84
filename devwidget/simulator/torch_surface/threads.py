"""Threads that are started while a simulation runs belong to it; those that outlive it do nothing until the next one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from devwidget.simulator.operators import mode_without_values
from devwidget.simulator.operators.dispatch_mode import VirtualMode
from devwidget.simulator.patching import Patches

GRACE_S = 0.5
"""How long the end of a simulation waits for its threads."""
_running: dict[threading.Thread, VirtualMode] = {}
_lock = threading.RLock()
_absent = object()
_is_simulated = False


def install(patches: Patches) -> None:
    """Have every new thread enter a mode of its own, and those of an earlier simulation go on in this one."""
    global _is_simulated
    patches.on_undo(_rest)
    with _lock:
        _is_simulated = True
        for mode in _running.values():
            mode_without_values.resume(mode)
    patches.wrap(threading.Thread, "start", starting_simulated)


def _rest() -> None:
    global _is_simulated
    with _lock:
        _is_simulated = False
        for mode in _running.values():
            mode_without_values.rest(mode)


def starting_simulated(original: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """A `Thread.start` whose thread runs on virtual GPUs."""

    def start(self: threading.Thread) -> None:
        run, own = self.run, vars(self).get("run", _absent)

        def run_simulated() -> None:
            # Taken off here and not after `start`, which may return before the new thread has looked for `run`.
            _put_back(self, own)
            with _simulated():
                run()

        self.run = run_simulated  # type: ignore[method-assign]
        try:
            original(self)
        except BaseException:
            _put_back(self, own)
            raise

    return start


def _put_back(thread: threading.Thread, own: Any) -> None:
    """The thread's own `run`, which is that of its class unless the user has given it another."""
    if own is _absent:
        vars(thread).pop("run", None)
    else:
        vars(thread)["run"] = own


@contextlib.contextmanager
def _simulated() -> Iterator[None]:
    """Run the calling thread in the simulation, if that has not ended before the thread began."""
    thread = threading.current_thread()
    with contextlib.ExitStack() as stack:
        with _lock:
            if _is_simulated:
                stack.callback(_running.pop, thread, None)
                _running[thread] = stack.enter_context(mode_without_values.new_mode())  # modes are kept per thread
        yield


def wait_for_all() -> None:
    """Let replicas that Ctrl-C has left alone end in their simulation: torch for CUDA aborts where a virtual GPU is no more."""
    until = time.monotonic() + GRACE_S
    for thread in list(_running):
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
