"""Reports that a rank saves without a query: on an exception or signal that ends it, and at intervals."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType

from devwidget.capture.undo import Undo
from devwidget.extras.ranks.records.rank import LastWord
from devwidget.extras.ranks.stacks import INTERRUPTING, error_frames, error_stack
from devwidget.records.errors import error_text

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals with which torchrun, Slurm and others end a rank and that a process can catch."""
_LONGEST_ERROR = 2000

Write = Callable[[LastWord, Sequence[FrameType]], None]


class LastWords:
    """Save a report when a process is about to end, and at intervals, without changing how it ends.

    Args:
        write: Writes what the process holds, and why; called once for the end, on any thread, with the frames of the
            exception.
        every: Seconds between regular reports; 0 for none.
    """

    def __init__(self, write: Write, every: float) -> None:
        self._write, self._every = write, every
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._undo = Undo()

    def begin(self) -> None:
        """Start watching."""
        _told[:] = [self]
        _forget_in_children()
        self._replace_excepthook()
        if threading.current_thread() is threading.main_thread():
            _SignalWatch(self.say).begin(self._undo)
        if self._every:
            threading.Thread(target=self._write_often, name="devwidget from time to time", daemon=True).start()

    def end(self) -> None:
        """Stop watching; the process ended normally unless it reported otherwise."""
        self._undo.run_steps()
        self.say(LastWord("ended"))

    def forget(self) -> None:
        """Forget everything in a forked child, which is not a rank and lacks the thread."""
        self._is_over.set()
        self._undo.run_steps()

    def say_error(self, error: BaseException) -> None:
        """Report that an exception ends the process or the block of the agent, except a normal exit."""
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            word = LastWord("raised", error_text(error)[:_LONGEST_ERROR], error_stack(error.__traceback__))
            self.say(word, error_frames(error.__traceback__))

    def say(self, word: LastWord, frames: Sequence[FrameType] = ()) -> None:
        """Report how it ends, only once: what follows an exception is a consequence."""
        with self._lock:
            if not self._is_over.is_set():
                self._is_over.set()
                self._write(word, frames)

    def _write_often(self) -> None:
        while not self._is_over.wait(self._every):
            with self._lock:
                if not self._is_over.is_set():
                    self._write(LastWord("running", every=self._every), ())

    def _replace_excepthook(self) -> None:
        """Report an exception before the existing hook shows it."""
        before = sys.excepthook

        def tell_and_show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            try:
                self.say_error(error)
            finally:
                before(kind, error, trace)

        def put_back() -> None:
            # Another hook may have been put in meanwhile, which calls ours: then ours stays, and says nothing more.
            if sys.excepthook is tell_and_show:
                sys.excepthook = before

        self._undo.add_step(put_back)
        sys.excepthook = tell_and_show


_told: list[LastWords] = []


@functools.cache
def _forget_in_children() -> None:
    """Register once: a forked worker inherits the socket, so a signal that ends it would be reported here."""
    os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for each in _told:
        each.forget()


class _SignalWatch:
    """Report signals that end the process, on another thread; the process then ends as without devwidget.

    A Python handler runs on the main thread, but not while that waits in a collective. C writes the number of a signal to a
    socket at once, and a thread reads it and saves the report. If the program handles or ignores the signal, nothing
    changes and nothing is reported, because the program may continue.
    """

    def __init__(self, say: Callable[[LastWord], None]) -> None:
        self._say = say
        self._reader, self._writer = socket.socketpair()
        self._watched: set[int] = set()

    def begin(self, undo: Undo) -> None:
        """Start watching, unless the program already uses this mechanism, as asyncio does."""
        undo.add_step(self._put_back)
        self._writer.setblocking(False)
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                self._watched.add(number)
                signal.signal(number, self._handle)
        threading.Thread(target=self._watch, name="devwidget signals", daemon=True).start()

    def _put_back(self) -> None:
        # Other threads may not; what then stays ends the process as it would without us.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._watched:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
        if self._writer.fileno() != -1:
            found = signal.set_wakeup_fd(-1)
            if found not in (-1, self._writer.fileno()):
                signal.set_wakeup_fd(found, warn_on_full_buffer=False)
            # Not `shutdown`, which would end the socket of the process that has forked us, too.
            self._writer.close()

    def _watch(self) -> None:
        while told := self._reader.recv(64):
            for number in told:
                self._end_by(number)
        self._reader.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal on the main thread, if it runs Python again: another library may have replaced the socket."""
        # The lock may be held by what this interrupts.
        threading.Thread(target=self._end_by, args=(number,), daemon=True).start()

    def _end_by(self, number: int) -> None:
        if number not in self._watched or signal.getsignal(number) != self._handle:
            return
        try:
            self._say(LastWord("terminated", signal.Signals(number).name))
        finally:
            # `signal.signal` is for the main thread alone.
            ctypes.CDLL(None).signal(number, None)
            os.kill(os.getpid(), number)


INTERRUPTING.add(_SignalWatch._handle.__code__)
