"""Replaces names and puts them back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

ABSENT = object()


class Patches:
    """A stack of replaced attributes; undone in reverse order."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any]] = []
        self.are_suspended = False
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

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Everything as it was before, for a while."""
        done, self._done = self._done, []
        ours = [(owner, name, vars(owner)[name], before) for owner, name, before in done]
        self.are_suspended = True
        for owner, name, _, before in reversed(ours):
            _put(owner, name, before)
        try:
            yield
        finally:
            for owner, name, value, _ in ours:
                setattr(owner, name, value)
            self.are_suspended = False
            self._done = done

    def undo(self) -> None:
        """Put everything back."""
        while self._afterwards:
            self._afterwards.pop()()
        while self._done:
            _put(*self._done.pop())


def _put(owner: Any, name: str, before: Any) -> None:
    if before is ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
