"""Ctrl-C: it waits while something is put in or taken out, so that no half of it is left behind."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

_Self = TypeVar("_Self")


class _Held:
    """A SIGINT handler that only remembers.

    Attributes:
        users: the handler that it stands in for.
        waiting: whether an interrupt has come.
    """

    def __init__(self, users: Callable[[int, FrameType | None], Any]) -> None:
        self.users = users
        self.waiting = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting = True

    def hand_on(self) -> None:
        """The user's handler is in place again, and is given the interrupt that has waited for it."""
        signal.signal(signal.SIGINT, self.users)
        if self.waiting:
            self.waiting = False
            self.users(signal.SIGINT, sys._getframe(1))


def _handler() -> Any:
    """The handler of SIGINT; None outside the main thread, which alone is interrupted."""
    return signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None


class uninterrupted:
    """`with uninterrupted(): ...`: Ctrl-C takes effect at the end of the outermost such block.

    A class and not a generator: a generator that is dropped half-way would hold interrupts when it is collected.
    """

    def __enter__(self) -> None:
        users = _handler()
        self._held = None if isinstance(users, _Held) or not callable(users) else _Held(users)
        if self._held is not None:
            signal.signal(signal.SIGINT, self._held)

    def __exit__(self, *exc_info: object) -> None:
        if self._held is not None:
            self._held.hand_on()


class interruptible:
    """The user's own code inside an `uninterrupted` block: Ctrl-C, and one that has waited, takes effect at once."""

    def __enter__(self) -> None:
        held = _handler()
        self._held = held if isinstance(held, _Held) else None
        if self._held is not None:
            self._held.hand_on()

    def __exit__(self, *exc_info: object) -> None:
        users = _handler()  # the code inside may have set its own
        if self._held is not None and callable(users):
            self._held.users = users
            signal.signal(signal.SIGINT, self._held)


def all_or_nothing(enter: Callable[[_Self], None]) -> Callable[[_Self], _Self]:
    """Make an `__enter__` that calls `__exit__` if it fails or is interrupted, of a method that puts things in."""

    @functools.wraps(enter)
    def entered(self: _Self) -> _Self:
        try:
            with uninterrupted():
                enter(self)
            return self
        except BaseException:
            self.__exit__(*sys.exc_info())  # type: ignore[attr-defined]
            raise

    return entered
