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
from devwidget.capture.patching.registry import PatchedFunction
from tests.surface import Surface, differences, surface

Line = tuple[str, int]
"""File and line number."""
OURS = str(pathlib.Path(devwidget.__file__).parent)


def world(*users: type) -> Surface:
    """All that devwidget may replace, install or hold in this process, and in classes of the user's."""
    return surface(*users)


def left_behind(before: Surface, *users: type) -> list[tuple[str, Any]]:
    """What is active that was not, and what has changed once the next call has taken out what is inert."""
    now = surface(*users)
    active = [(owner, name) for owner, name in differences(before, now) if not _is_inert(now.get(owner, {}).get(name))]
    with devwidget.record():
        pass
    return active + differences(before, surface(*users))


def _is_inert(value: Any) -> bool:
    """Whether it is a hub of ours to which nobody listens."""
    function = getattr(value, "__func__", value)
    return isinstance(function, PatchedFunction) and not function.hub.listeners


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


_UNGUARDED = (
    "with uninterrupted()", "if self._session is None", "labels.inside.depth", "return self", "self.stop()",
    "if not getattr(self, ",
)  # fmt: skip


def cannot_be_interrupted(line: Line) -> bool:
    """Lines where a signal strikes never, or where Python itself gives no hold.

    Signals are looked for after calls, not between `depth += 1` and its `try`. Before an `__exit__` holds interrupts back, and
    once an `__enter__` has released them, nothing can keep Python from raising in it, and what is raised in a finalizer is
    dropped. Nor are signals looked for between the end of a block and the `__exit__` of its context. The end of torch's own
    `no_grad` passes through function modes, and a signal can strike there as it can in that end itself.
    """
    file, number = line
    text = linecache.getline(file, number).strip()
    return (
        text.partition("  #")[0] == "try:"
        or "DisableTorch" in text
        or text.startswith(_UNGUARDED)
        or (text == "return func(*args, **(kwargs or {}))" and file.endswith("birth_mode.py"))
        or (file.endswith("operator_key.py") and text.startswith(("here.stack =", "if below is None", "_watch_thread(True)")))
        or file.endswith(("interrupts.py", "labels.py"))
    )


_ENDS = "interrupts.py", "mode_stack.py", "undo.py"


def is_end(line: Line) -> bool:
    """Whether what a line raises keeps something from ending: nothing but the interpreter runs there that could."""
    file, number = line
    return file.endswith(_ENDS) or linecache.getline(file, number).strip().startswith("with ")
