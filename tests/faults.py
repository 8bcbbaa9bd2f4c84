"""Faults on demand: Ctrl-C at a chosen line of devwidget's own code, and what may not be left behind afterwards."""

from __future__ import annotations

import contextlib
import linecache
import pathlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import devwidget
from tests.surface import Surface, differences, surface

Line = tuple[str, int]
"""File and line number."""
OURS = str(pathlib.Path(devwidget.__file__).parent)


def world(*users: type) -> Surface:
    """All that devwidget may replace, install or hold in this process, and in classes of the user's."""
    return surface(*users)


def left_behind(before: Surface, *users: type) -> list[tuple[str, Any]]:
    """What has changed since."""
    return differences(before, surface(*users))


class _Lines:
    """Follows every line that a thread runs in devwidget."""

    def __enter__(self) -> _Lines:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(OURS) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.reached((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def reached(self, line: Line) -> None:
        raise NotImplementedError


class LinesRun(_Lines):
    """Counts how often each line runs, in the order of their first time."""

    def __init__(self) -> None:
        self.counts: dict[Line, int] = {}

    def reached(self, line: Line) -> None:
        self.counts[line] = self.counts.get(line, 0) + 1


class _At(_Lines):
    """Strikes before a line runs for the nth time."""

    def __init__(self, line: Line, nth: int = 1) -> None:
        self._at, self._left = line, nth

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Other files need not be followed line by line, which costs many times what they do."""
        return self._line if frame.f_code.co_filename == self._at[0] else None

    def reached(self, line: Line) -> None:
        if line == self._at:
            self._left -= 1
            if self._left == 0:
                self.strike()

    def strike(self) -> None:
        raise NotImplementedError


class InterruptAt(_At):
    """Ctrl-C, as the kernel's stop button sends it."""

    def strike(self) -> None:
        signal.raise_signal(signal.SIGINT)


class Fault(MemoryError):
    """What no guard can hold back: a full memory, or an exception that another thread has sent."""


class RaiseAt(_At):
    """A line that raises."""

    def strike(self) -> None:
        raise Fault


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt inside the block, whoever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cannot_be_interrupted(line: Line) -> bool:
    """Lines where a signal strikes never, or where Python itself gives no hold.

    Signals are looked for after calls, not between `depth += 1` and its `try`. Before an `__exit__` holds interrupts back
    nothing can keep Python from raising in it, and what is raised in a finalizer is dropped. Nor are signals looked for
    between the end of a block and the `__exit__` of its context, which only a context in Python can make up for. The end of
    torch's own `no_grad` passes through function modes, and a signal can strike there as it can in that end itself.
    """
    file, number = line
    text = linecache.getline(file, number).strip()
    return (
        text.partition("  #")[0] == "try:"
        or "DisableTorch" in text
        or text.startswith(("with uninterrupted()", "if self._session is None", "labels.inside.depth"))
        or (text == "return func(*args, **(kwargs or {}))" and file.endswith("birth_mode.py"))
        or (file.endswith("operator_key.py") and text.startswith(("here.stack =", "if below is None", "_watch_thread(True)")))
        or file.endswith(("interrupts.py", "labels.py"))
    )
