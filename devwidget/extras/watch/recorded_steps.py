"""Steps that are recorded whole: when, and what only two of them together show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.records.trace import Move, Trace, Wait

WARM_UP = 10
"""Steps before the first that is recorded: optimizers make their state in the first, and caches fill."""
SHARE = 0.02
"""Of the time of a run, which recorded steps may take where nobody said how often."""
LEAST_APART = 100
"""Steps between two that are recorded for no other reason than that there is time for it."""
MOST_CHANGES = 8
"""Changes for which a step is recorded whatever it costs; after that there must be time for it."""


class RecordingSchedule:
    """Which steps are recorded, and why.

    Args:
        every: how many steps lie between; None for as many as keep within `SHARE`.
    """

    def __init__(self, every: int | None) -> None:
        self._every, self._changes, self._last = every, 0, -1
        self._reason: Message | None = None
        self.spent = self.passed = 0.0

    def ask_for(self, reason: Message, *, at_once: bool = False) -> None:
        """Something has changed: the next step is worth a look.

        Args:
            at_once: in any case.
        """
        self._changes += not at_once
        if at_once or self._changes <= MOST_CHANGES or self._has_time():
            self._reason = reason

    def find_reason(self, number: int) -> Message | None:
        """Why a step is recorded; None if it is not."""
        reason = self._take_reason(number)
        if reason is not None:
            self._last = number
        return reason

    def _take_reason(self, number: int) -> Message | None:
        reason, self._reason = self._reason, None
        if self._last < 0 and number >= WARM_UP:
            return Message("the first steps are over")
        if reason is not None and number >= WARM_UP:
            return reason
        if self._every is not None:
            if number - self._last >= self._every:
                return Message("each {count} steps", count=self._every)
            return None
        if number - self._last >= LEAST_APART and self._has_time():
            return Message("there was time for it")
        return None

    def _has_time(self) -> bool:
        return self.spent <= SHARE * self.passed


Line = tuple[Any, ...]


class LateLines:
    """Hops and waits that come up in the middle of a run, in each step from there on.

    What is new in a recorded step is looked for in the very next one, before it is said: loggers and evaluations come up too,
    and are gone with the next step. Nor is it said of a line that took the place of another, as in the loop of a next stage.
    """

    def __init__(self) -> None:
        self._known: set[Line] = set()
        self._new: dict[Line, Move | Wait] = {}
        self._usual = Counter[tuple[DeviceId, ...]]()
        self._number = self._before = -1

    @property
    def wants_next(self) -> bool:
        """Whether the very next step has to be recorded."""
        return bool(self._new)

    def meet_step(self, number: int, trace: Trace) -> list[tuple[Move | Wait, int, int]]:
        """What this step and the one before have, and none before that; with the first of the two, and the last without."""
        found, confirms = dict(_list_lines(trace)), number == self._number + 1
        again = [line for line in self._new if confirms and line in found]
        counts = Counter(map(_find_ends, found.values()))
        more = [line for line in again if counts[_find_ends(found[line])] > self._usual[_find_ends(found[line])]]
        late = [(self._new[line], self._number, self._before) for line in more]
        self._known.update(found if self._before < 0 else again)
        unknown = {line: each for line, each in found.items() if line not in self._known}
        self._new = {} if confirms else unknown
        if not unknown:
            self._before, self._usual = number, counts
        self._number = number
        return late


def _find_ends(line: Move | Wait) -> tuple[DeviceId, ...]:
    if isinstance(line, Move):
        return (line.source, line.target)
    return (line.device,)


def _list_lines(trace: Trace) -> Iterator[tuple[Line, Move | Wait]]:
    """Backward repeats, the other way, what forward has done."""
    for move in trace.moves:
        if move.site is not None and move.cause == "explicit" and move.phase != "backward":
            yield (move.site.place, move.source, move.target), move
    for wait in trace.waits:
        if wait.site is not None and not wait.meant:
            yield (wait.site.place, wait.call, wait.device), wait
