"""Undo steps that run to the last, whatever one of them does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NotRestored(Exception):
    """What is gone for good; its words are the reason that the user reads."""


class Undoing:
    """Runs steps and remembers those that failed.

    Attributes:
        lost: what could not be put back, an object or a word for it, and why.
    """

    def __init__(self) -> None:
        self.lost: list[tuple[Any, str]] = []

    def attempt_step(self, owner: Any, undo: Callable[[], object]) -> None:
        """Run one step; why it failed is kept beside what it should have put back."""
        try:
            undo()
        except Exception as error:
            self.lost.append((owner, format_reason(error)))


def format_reason(error: BaseException) -> str:
    """An exception in a line. Only torch's and Python's own are asked for their words."""
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
