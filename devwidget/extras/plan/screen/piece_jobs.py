"""Run a long job in pieces on the main thread, with cells and clicks between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from devwidget.panel.actions import MainThreadJobs

PAUSE_SECONDS = 0.02
"""Seconds between two pieces, in which the kernel handles messages such as cells and clicks."""


class PieceJobs:
    """Run a job in pieces on the main thread; cells and clicks run between them. A new job replaces the old one.

    Args:
        on_piece: Called with the result of each piece, and with 0 at the start.
        on_end: Called at the end of a job, with the exception that ended it, if any.
    """

    def __init__(self, on_piece: Callable[[int], None], on_end: Callable[[BaseException | None], None]) -> None:
        self._jobs, self._on_piece, self._on_end = MainThreadJobs(), on_piece, on_end
        self._pieces: Iterator[int] | None = None

    def start(self, pieces: Iterator[int]) -> None:
        """Run the pieces of a job; the first one as soon as the main thread is free."""
        is_scheduled, self._pieces = self._pieces is not None, pieces
        self._on_piece(0)
        if not is_scheduled:
            self._jobs.call_later(PAUSE_SECONDS, self._run_piece)

    def cancel(self) -> None:
        """Interrupt the running piece and drop the others."""
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
