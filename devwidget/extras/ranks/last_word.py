"""When a rank says something unasked: at an exception that ends it, at a signal that ends it, and from time to time."""

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
"""Those by which torchrun, Slurm and others end a rank, and that a process may catch."""
_LONGEST_ERROR = 2000

Write = Callable[[LastWord, Sequence[FrameType]], None]


class LastWords:
    """Has a process write when it is about to end, and from time to time, without changing how it ends.

    Args:
        write: writes what the process holds, and why; it is called once for the end, in whichever thread is left, with the
            frames that an exception came through.
        every: seconds between two that are written from time to time; 0 for none.
    """

    def __init__(self, write: Write, every: float) -> None:
        self._write, self._every = write, every
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._undo = Undo()

    def begin(self) -> None:
        """Watch from now on."""
        _told[:] = [self]
        _forget_in_children()
        self._replace_excepthook()
        if threading.current_thread() is threading.main_thread():
            _SignalWatch(self.say).begin(self._undo)
        if self._every:
            threading.Thread(target=self._write_often, name="devwidget from time to time", daemon=True).start()

    def end(self) -> None:
        """Watch no more; the process has ended in order, unless it has said otherwise before."""
        self._undo.run_steps()
        self.say(LastWord("ended"))

    def forget(self) -> None:
        """In a child that this process has forked: it is no rank, and has no thread of ours."""
        self._is_over.set()
        self._undo.run_steps()

    def say_error(self, error: BaseException) -> None:
        """Say that an exception ends the process, or the block of the agent; that of a usual end says nothing."""
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            word = LastWord("raised", error_text(error)[:_LONGEST_ERROR], error_stack(error.__traceback__))
            self.say(word, error_frames(error.__traceback__))

    def say(self, word: LastWord, frames: Sequence[FrameType] = ()) -> None:
        """Say how it ends, the first time alone: what comes after an exception is only the end of that."""
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
        """Have an exception told before the hook that is there shows it."""
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
    """Register once: a signal that ends a forked worker would be told to us, through the socket that it has inherited."""
    os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for each in _told:
        each.forget()


class _SignalWatch:
    """Has a thread told of signals that end the process, which then ends by them as it would have without us.

    A handler of Python runs in the main thread, and not while that waits inside a collective. But C writes the number of each
    signal that has one to a socket at once, from where a thread reads it: that can write the last word meanwhile. Where the
    program has a handler, or ignores the signal, it stays so, and nothing is said: it may go on.
    """

    def __init__(self, say: Callable[[LastWord], None]) -> None:
        self._say = say
        self._reader, self._writer = socket.socketpair()
        self._watched: set[int] = set()

    def begin(self, undo: Undo) -> None:
        """Watch from now on; where another is told of signals in this way already, as asyncio is, leave that alone."""
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
        """In the main thread, if it comes to Python again: another may have taken our place where C tells of signals."""
        # The lock may be held by what this interrupts.
        threading.Thread(target=self._end_by, args=(number,), daemon=True).start()

    def _end_by(self, number: int) -> None:
        """Say the last word, and end the process by the signal."""
        if number not in self._watched or signal.getsignal(number) != self._handle:
            return
        try:
            self._say(LastWord("terminated", signal.Signals(number).name))
        finally:
            # `signal.signal` is for the main thread alone.
            ctypes.CDLL(None).signal(number, None)
            os.kill(os.getpid(), number)


INTERRUPTING.add(_SignalWatch._handle.__code__)
