"""Precaution: a step that nobody has watched yet is stopped before it reaches outside, and when it takes long."""

from __future__ import annotations

from time import monotonic as clock

from devwidget.capture.restore import SavedState
from devwidget.records.schema.message import Message
from devwidget.trying.outside.own_threads import OwnThreads
from devwidget.trying.outside.reachable_state import ReachableState
from devwidget.trying.outside.watch import Watch
from devwidget.trying.outside.watched_calls import watch_calls

MOST_SECONDS = 0.25
"""Of the first run of a step of which nobody knows how long it takes: the trial of a fix that cures takes four more."""


class Stopped(BaseException):
    """Why a step was not run, or not to its end; no `except Exception` of the program takes it for one of its own."""


class Precaution(Watch):
    """A watch that lets nothing happen that stays: files, processes, sockets and queues are refused before they are reached.

    What is in memory, and put back by nobody, cannot be refused while the step runs. So the code that it may run is read first.
    """

    def __init__(self, own: OwnThreads) -> None:
        super().__init__()
        self.own, self._end = own, clock()

    def begin(self, kept: SavedState) -> None:
        """The step begins, unless its code names something that it could change for good.

        Raises:
            Stopped: if it does.
        """
        self._state = ReachableState(kept)
        if name := next(self._state.changeable(), ""):
            raise Stopped(Message("the step may change `{name}`", name=name))
        watch_calls(self.own, self._refuse, self._undo)
        self._end = clock() + MOST_SECONDS

    def _refuse(self, words: str) -> None:
        self._see(words)
        raise Stopped(words)

    def report_progress(self, words: str) -> None:
        """Told from time to time which module runs.

        Raises:
            Stopped: if it is late.
        """
        if clock() > self._end:
            raise Stopped(Message("the step takes more than {seconds} s", seconds=MOST_SECONDS))
