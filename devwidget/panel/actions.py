"""The interface between a panel and the layer that uses torch, and the thread on which its jobs run."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Fix
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.views.memory import Held


class MainThreadJobs:
    """Run one job at a time on the main thread; it can be interrupted.

    ipykernel may run a widget's callback on another thread while the user's cell runs. A forward pass there would race with
    the training loop, so the event loop of the main thread runs it after the cell.
    """

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
            `done`, `queued`, or `busy` if another job is running or queued.
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

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function on the main thread after some seconds; at once without an event loop."""
        if self._loop is None:
            call()
        else:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, call)

    def cancel(self) -> bool:
        """Interrupt the running job as the kernel's stop button does, or drop the queued one; False if there is none."""
        with self._lock:
            if self._running:
                _interrupt_main_thread()
            dropped, self._next = self._next, None
            return self._running or dropped is not None

    def _run_waiting(self) -> None:
        """Run the queued job, unless it was dropped."""
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
    """Let SIGINT raise KeyboardInterrupt while a job runs; ipykernel ignores it between cells.

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


GIVEN = "(given)"
"""What a field of the panel says for a value that has no name in the notebook."""


@dataclass(frozen=True)
class TraceRequest:
    """Inputs of one traced step, as typed; "" for none.

    Attributes:
        batch, loss, target: Expressions, evaluated in the user's namespace.
        heal: Move misplaced tensors and continue, so that one run finds every fault.
        samples: How many of the batch and the target are used, the first ones; 0 for all.
    """

    batch: str = ""
    loss: str = ""
    target: str = ""
    heal: bool = True
    samples: int = 0


@dataclass(frozen=True)
class CellEdit:
    """An edit of lines in a notebook cell. The page finds the cell by its number and text.

    Attributes:
        number: Execution count of its last run.
        raw: Its text in the page.
        first: First line, counted from 1.
        old, new: Lines, at least one each.
    """

    number: int
    raw: str
    first: int
    old: list[str]
    new: list[str]


class AppliedFix(Protocol):
    """A fix to apply to the user's source: the page writes cells, the kernel writes files and updates live functions.

    Attributes:
        fix: The fix.
        cells: Edits that the page writes, one for each cell.
        files: Names of the files that `take_effect` writes.
        works: `now` if a trace shows it; `cell` if you must re-run its cell, `below` if you must also re-run those below it;
            `build` if you must build the model again, `restart` if the kernel must be restarted.
    """

    fix: Fix
    cells: tuple[CellEdit, ...]
    files: tuple[str, ...]
    works: Literal["now", "cell", "below", "build", "restart"]

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of its cells once they are written."""

    def take_effect(self) -> None:
        """Write the files, and update live functions."""

    def take_back(self) -> None:
        """Undo `take_effect`."""


def _apply_nothing(fix: Fix) -> AppliedFix:
    raise DevwidgetError(Message("this panel cannot apply fixes"), instead=Message("copy the new lines"))


@dataclass(frozen=True)
class PanelActions:
    """The panel's access to the model. None of these may keep the model alive.

    Attributes:
        snapshot: Returns where everything is now; None if the model no longer exists.
        trace: Runs one step; calls its second argument with progress texts. Raises DevwidgetError with a text to show.
        names: Notebook variables that may be a batch, best first.
        memory: Returns the memory of each device; cheap.
        training: Returns bytes of gradients and optimizer state by device; cheap, also called on another thread.
        request: The initial inputs.
        forget: Releases a batch that only the panel keeps.
        try_fix: Runs the step of a request with and without a fix; raises as `trace`.
        apply: Prepares a fix for the user's source; raises DevwidgetError if it does not fit.
        follow: Follows the model's name to its current object, after each cell; True if that is another object.
        can_repeat: Returns whether a trace of a request changes nothing of yours, so that it needs no click.
        name: Returns the notebook variable that refers to the model, "" if none does.
        model: Returns the model for sections of extras, None if it no longer exists; also called on another thread.
    """

    snapshot: Callable[[], Snapshot | None]
    trace: Callable[[TraceRequest, Callable[[str], None]], Trace]
    names: Callable[[], tuple[str, ...]]
    memory: Callable[[], tuple[DeviceMemory, ...]]
    request: TraceRequest = TraceRequest()
    forget: Callable[[], None] = lambda: None
    training: Callable[[], Held] = dict
    try_fix: Callable[[TraceRequest, Fix, Callable[[str], None]], Fix] = lambda request, fix, progress: fix.try_it()
    apply: Callable[[Fix], AppliedFix] = _apply_nothing
    follow: Callable[[], bool] = lambda: False
    can_repeat: Callable[[TraceRequest], bool] = lambda request: False
    name: Callable[[], str] = str
    model: Callable[[], Any] = lambda: None
