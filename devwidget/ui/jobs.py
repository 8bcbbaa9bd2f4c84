"""Work for the main thread, asked for from wherever a click arrives.

ipykernel may run a widget's callback on a thread of its own, beside the user's running cell. A forward pass there would race
with the user's training loop, so it is handed to the loop of the main thread, which takes it when the running cell has ended.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


class MainThreadJobs:
    """Runs one job at a time on the main thread, and can stop the one that runs."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._running = False
        self._next: Callable[[], None] | None = None  # waits until the main thread is free
        # Plain Python and tests have no running loop: jobs then run where they are.
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()

    def submit(self, job: Callable[[], None]) -> str:
        """Run `job` now if this is the main thread, else as soon as the main thread is free.

        Returns:
            `done`, `queued`, or `busy` when another job runs or waits already.
        """
        with self._lock:
            if self._running or self._next is not None:
                return "busy"
            self._next = job
        if threading.current_thread() is threading.main_thread() or self._loop is None:
            self._run_waiting()
            return "done"
        self._loop.call_soon_threadsafe(self._run_waiting)
        return "queued"

    def cancel(self) -> bool:
        """Interrupt the running job as the kernel's stop button would, or drop the one that waits; False if there is none."""
        with self._lock:
            if self._running:
                _interrupt_main_thread()
            dropped, self._next = self._next, None
            return self._running or dropped is not None

    def _run_waiting(self) -> None:
        """Run the job that waits, unless it was dropped meanwhile."""
        try:
            with _allow_interrupt():
                with self._lock:
                    job, self._next = self._next, None
                    self._running = job is not None
                try:
                    if job is not None:
                        job()
                finally:
                    with self._lock:
                        self._running = False
        finally:
            with self._lock:
                self._running = False


def _interrupt_main_thread() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        # A real signal: it also ends a sleep or a wait.
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


@contextlib.contextmanager
def _allow_interrupt() -> Iterator[None]:
    """Between cells ipykernel ignores SIGINT; while a job runs it must raise KeyboardInterrupt.

    An interrupt that arrives between the job's own handling and this exit ends here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
