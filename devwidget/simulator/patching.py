"""Replaces names and puts them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ABSENT = object()


class Patches:
    """A stack of replaced attributes; undone in reverse order."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any]] = []
        self._afterwards: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute, or add one that is not there."""
        # Look into the owner's own dictionary: an inherited attribute must be inherited again afterwards.
        before = vars(owner).get(name, ABSENT)
        setattr(owner, name, value)
        self._done.append((owner, name, before))

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace an attribute by `wrapper(attribute)`; nothing happens where there is none."""
        original = getattr(owner, name, ABSENT)
        if original is not ABSENT:
            self.set(owner, name, wrapper(original))

    def on_undo(self, action: Callable[[], None]) -> None:
        """Have something done when everything is put back."""
        self._afterwards.append(action)

    def undo(self) -> None:
        """Put everything back."""
        while self._afterwards:
            self._afterwards.pop()()
        while self._done:
            owner, name, before = self._done.pop()
            if before is ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
