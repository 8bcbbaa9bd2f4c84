"""Threads that are started while a simulation runs belong to it."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable

from devwidget.simulator import valueless
from devwidget.simulator.patching import Patches

GRACE_S = 0.5
"""How long the end of a simulation waits for its threads."""
_running: set[threading.Thread] = set()


def install(patches: Patches) -> None:
    """Have every new thread enter a mode of its own."""
    patches.wrap(threading.Thread, "start", starting_simulated)


def starting_simulated(original: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """A `Thread.start` whose thread runs on virtual GPUs."""

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        run = self.run

        def run_simulated() -> None:
            # Taken off here and not after `start`, which may return before the new thread has looked for `run`.
            del self.run
            _running.add(self)
            try:
                # Modes are kept per thread. The one that the caller holds keeps torch's process-wide flags in order.
                with valueless.new_mode():
                    run()
            finally:
                _running.discard(self)

        self.run = run_simulated  # type: ignore[method-assign]
        try:
            original(self)
        except BaseException:
            del self.run
            raise

    return start


def wait_for_all() -> None:
    """Let replicas that Ctrl-C has left alone end in their simulation: torch for CUDA aborts where a virtual GPU is no more."""
    until = time.monotonic() + GRACE_S
    for thread in _running - {threading.current_thread()}:
        thread.join(max(0.0, until - time.monotonic()))
