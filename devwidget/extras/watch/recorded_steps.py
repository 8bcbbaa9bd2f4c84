"""Which steps are recorded, and what only two recorded steps together show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.records.trace import Move, Trace, Wait

WARM_UP = 10
"""Steps before the first recorded one: optimizers create their state in the first step, and caches fill."""
SHARE = 0.02
"""Share of the time of a run that recorded steps may take by default."""
LEAST_APART = 100
"""Steps between two that are recorded only because the time budget allows it."""
MOST_CHANGES = 8
"""Changes for which a step is recorded at any cost; later ones need time in the budget."""


class RecordingSchedule:
    """Decide which steps are recorded, and why.

    Args:
        every: Number of steps between recorded ones; None for as many as fit in `SHARE` of the time.
    """

    def __init__(self, every: int | None) -> None:
        self._every, self._changes, self._last, self._first = every, 0, -1, 0
        self._reason: Message | None = None
        self.spent = self.passed = 0.0

    def ask_for(self, reason: Message, *, at_once: bool = False) -> None:
        """Ask for a recording of the next step after a change.

        Args:
            at_once: Record it whatever it costs.
        """
        self._changes += not at_once
        if at_once or self._changes <= MOST_CHANGES or self._has_time():
            self._reason = reason

    def begin_again(self, number: int) -> None:
        """Treat a step as the first one, and record one soon after it."""
        self._first = number

    def find_reason(self, number: int) -> Message | None:
        """Return why a step is recorded; None if it is not."""
        reason = self._take_reason(number)
        if reason is not None:
            self._last = number
        return reason

    def _take_reason(self, number: int) -> Message | None:
        reason, self._reason = self._reason, None
        is_warm = number >= self._first + WARM_UP
        if self._last < self._first and is_warm:
            return Message("first steps done")
        if reason is not None and is_warm:
            return reason
        if self._every is not None:
            if number - self._last >= self._every:
                return Message("every {count} steps", count=self._every)
            return None
        if number - self._last >= LEAST_APART and self._has_time():
            return Message("within the time budget")
        return None

    def _has_time(self) -> bool:
        return self.spent <= SHARE * self.passed


Line = tuple[Any, ...]


class LateLines:
    """Transfers and syncs that start in the middle of a run and then happen in each step.

    A new line in a recorded step is reported only if the next step has it too, because loggers and evaluations do not recur.
    A line that replaces another one, as in the loop of a next stage, is not reported.
    """

    def __init__(self) -> None:
        self._known: set[Line] = set()
        self._new: dict[Line, Move | Wait] = {}
        self._usual = Counter[tuple[DeviceId, ...]]()
        self._number = self._before = -1

    @property
    def wants_next(self) -> bool:
        """Whether the next step must be recorded."""
        return bool(self._new)

    def meet_step(self, number: int, trace: Trace) -> list[tuple[Move | Wait, int, int]]:
        """Return the lines in this step and the one before but in none earlier, with the first and last step."""
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
    """Return the lines of a step. Backward is left out because it mirrors forward."""
    for move in trace.moves:
        if move.site is not None and move.cause == "explicit" and move.phase != "backward":
            yield (move.site.place, move.source, move.target), move
    for wait in trace.waits:
        if wait.site is not None and not wait.meant:
            yield (wait.site.place, wait.call, wait.device), wait
