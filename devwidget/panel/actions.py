"""What a panel may ask of the layer that knows torch, on which thread that runs; and what others may ask of a panel."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Fix
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.views.memory import Held
from devwidget.views.placement import PlacementTable


class MainThreadJobs:
    """Runs one job at a time on the main thread, and can stop the one that runs.

    ipykernel may run a widget's callback on a thread of its own, beside the user's running cell. A forward pass there would
    race with the user's training loop, so it is handed to the loop of the main thread, which takes it when the cell has ended.
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

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call something on the main thread after a while; at once where no loop runs."""
        if self._loop is None:
            call()
        else:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, call)

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


PAUSE_SECONDS = 0.02
"""Between two pieces, in which the kernel reads what has come: a cell, a click."""


class PieceJobs:
    """Runs a job in pieces on the main thread, between which cells and clicks have their turn; a new job replaces the old.

    Args:
        on_piece: called with what each piece yields, and with 0 as a job begins.
        on_end: called as a job ends, with what ended it if that was not its last piece.
    """

    def __init__(self, on_piece: Callable[[int], None], on_end: Callable[[BaseException | None], None]) -> None:
        self._jobs, self._on_piece, self._on_end = MainThreadJobs(), on_piece, on_end
        self._pieces: Iterator[int] | None = None

    def start(self, pieces: Iterator[int]) -> None:
        """Run the pieces of a job, the first one as soon as the main thread is free."""
        is_scheduled, self._pieces = self._pieces is not None, pieces
        self._on_piece(0)
        if not is_scheduled:
            self._jobs.call_later(PAUSE_SECONDS, self._run_piece)

    def cancel(self) -> None:
        """Interrupt the piece that runs, and run no other."""
        if self._pieces is not None:
            self._pieces = None
            if not self._jobs.cancel():
                self._on_end(KeyboardInterrupt())

    def _run_piece(self) -> None:
        self._jobs.submit(self._advance)
        if self._pieces is not None:
            self._jobs.call_later(PAUSE_SECONDS, self._run_piece)

    def _advance(self) -> None:
        pieces, error, count = self._pieces, None, 0
        if pieces is None:
            return
        try:
            count = next(pieces, 0)
        except BaseException as raised:  # also an interrupt: the page says what ended it
            error = raised
        if self._pieces is not pieces:  # another job has come meanwhile, or none is wanted
            if self._pieces is None:
                self._on_end(error or KeyboardInterrupt())
        elif count:
            self._on_piece(count)
        else:
            self._pieces = None
            self._on_end(error)


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


@dataclass(frozen=True)
class TraceRequest:
    """The inputs of one traced step, as typed; "" for none.

    Attributes:
        batch, loss, target: expressions, evaluated in the user's namespace.
        heal: move stray tensors and go on, so that one run finds all faults.
    """

    batch: str = ""
    loss: str = ""
    target: str = ""
    heal: bool = True


@dataclass(frozen=True)
class CellEdit:
    """Lines of a notebook cell and what they become; the page finds the cell by its number and its text.

    Attributes:
        number: under which it ran last.
        raw: its text, as the page has it.
        first: the first line, counted from 1.
        old, new: lines, at least one each.
    """

    number: int
    raw: str
    first: int
    old: list[str]
    new: list[str]


class AppliedFix(Protocol):
    """A fix on its way into the user's source: the page writes cells, the kernel files and what is alive.

    Attributes:
        fix: what is applied.
        cells: what the page writes, one edit for each cell.
        files: names of files that `take_effect` writes.
        works: `now`, so that a trace shows it; `cell` if its cell is to be run again first; `later` if more than that is.
    """

    fix: Fix
    cells: tuple[CellEdit, ...]
    files: tuple[str, ...]
    works: Literal["now", "cell", "later"]

    @property
    def texts(self) -> tuple[str, ...]:
        """Of its cells, once they are written."""

    def take_effect(self) -> None:
        """Write the files, and let live functions do what their new text says."""

    def take_back(self) -> None:
        """Undo that."""


def _apply_nothing(fix: Fix) -> AppliedFix:
    raise DevwidgetError(Message("this panel cannot apply fixes"), instead=Message("copy the new lines"))


@dataclass(frozen=True)
class PanelActions:
    """The panel's way to the model. None of these may hold the model strongly.

    Attributes:
        snapshot: where everything is now; None when the model is gone.
        trace: runs one step; its second argument is called with words of progress. Raises DevwidgetError with a text to show.
        names: notebook variables that could be a batch, best first.
        memory: memory of each device now; cheap.
        training: bytes of gradients and optimizer state now, by device; cheap, and asked on another thread while a cell runs.
        request: what the inputs say at first.
        forget: lets go of a batch that only the panel holds.
        try_fix: runs the step of a request twice, and once of them with a fix; raises as `trace`.
        apply: prepares a fix for the user's source; raises DevwidgetError where it does not fit.
        follow: makes the object that the model's name is bound to now the model, after each cell; True if it is another one.
        name: the notebook's variable that holds the model, "" if none does.
        model: the model itself for sections of extras, None when it is gone or elsewhere; asked on another thread too.
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
    name: Callable[[], str] = str
    model: Callable[[], Any] = lambda: None


class Panel(Protocol):
    """A panel as its page's questions, the sections of extras and the notebook's cells see it.

    Attributes:
        actions: its way to the model.
        lock: held while something is drawn, because a cell and a click may come at once.
        view, live: the widgets of its page; the second is written while a cell runs, by one thread.
    """

    snapshot: Snapshot | None
    trace: Trace | None
    table: PlacementTable
    jobs: MainThreadJobs
    actions: PanelActions
    lock: contextlib.AbstractContextManager[Any]
    view: Any
    live: Any

    @property
    def is_shown(self) -> bool:
        """Whether a page displays it now."""

    def choose_row(self, row: int) -> None:
        """Note the row that was chosen on the page."""

    def keep(self) -> None:
        """Keep the last trace, to compare later ones with."""

    def answer_section(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Have a section answer a question of its page; None if it is nobody's."""

    def show_trace(self, trace: Trace) -> None:
        """Draw a trace that was recorded elsewhere."""

    def show_status(self, kind: str, text: str) -> None:
        """Say how the last thing that was asked for went."""

    def draw_head(self) -> None:
        """Draw the header, of which sections may say something else."""

    def show_printed(self, text: str) -> None:
        """Show what the traced code has printed."""

    def run_trace(self, request: TraceRequest | None = None) -> Trace:
        """Trace one step."""

    def try_fix(self, finding: int, fix: int) -> Trace:
        """Try one fix of the last trace."""

    def draw_devices(self, opened: Collection[str] = (), *, every: bool = False) -> dict[str, Any]:
        """Draw the model on its devices, with these blocks unfolded, or every block by itself."""

    def prepare_fix(self, finding: int, fix: int) -> AppliedFix:
        """Prepare one fix of the last trace for the user's source."""

    def apply_fix(self) -> None:
        """Let the prepared fix, which the page has written, take effect, and trace again where that shows it."""

    def undo_fix(self) -> None:
        """Take back the fix that was applied last, which the page has taken back."""

    def follow_name(self, cell: str = "") -> bool:
        """Follow the model's name when a cell has ended; return whether that was the first to display this panel."""

    def is_replaced_by(self, other: Self) -> bool:
        """Whether a newer panel stands in the place of this one."""

    def take_over(self, before: Self) -> None:
        """Go on with what was applied in the panel before."""

    def after_cell(self, raw: str = "", succeeded: bool = False, number: int = 0, *, is_new: bool = False) -> None:
        """Follow a cell that has ended: its text, whether it ran to its end, its number, whether it displayed this panel."""

    def sample_memory(self) -> bool:
        """Redraw the memory bars; False to stop watching."""
