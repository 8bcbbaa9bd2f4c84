"""Which steps are recorded."""

from __future__ import annotations

from devwidget.records.schema.message import Message

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
