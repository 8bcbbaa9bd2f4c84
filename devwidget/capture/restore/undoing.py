"""Run all undo steps, even if one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NotRestored(Exception):
    """The state is lost. The text is the reason that the user reads."""


class Undoing:
    """Runs steps and remembers those that failed.

    Attributes:
        lost: what could not be restored, an object or its name, and why.
    """

    def __init__(self) -> None:
        self.lost: list[tuple[Any, str]] = []

    def attempt_step(self, owner: Any, undo: Callable[[], object]) -> None:
        """Run one step. If it fails, keep the reason with what it should have restored."""
        try:
            undo()
        except Exception as error:
            self.lost.append((owner, format_reason(error)))


def format_reason(error: BaseException) -> str:
    """Return an exception as one line. Only torch's and Python's own exceptions are asked for their text."""
    kind = type(error)
    if kind is NotRestored:
        said: str = error.args[0]
        return said
    if kind.__module__ != "builtins":
        return kind.__name__
    words = BaseException.__str__(error).strip().splitlines() or [""]
    if words[0]:
        return f"{kind.__name__}: {words[0]}"
    return kind.__name__
