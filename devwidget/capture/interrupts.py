"""Delay signals while patches and hooks are installed or removed."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import traceback
import types
import weakref
from _signal import getsignal  # type: ignore[import-not-found]  # no enums: a tenth of the time
from _signal import signal as set_handler
from _thread import RLock
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch

from devwidget.capture import torch_internals


class Lock(RLock, contextlib.ContextDecorator):  # type: ignore[misc]  # final for the type checker alone
    """A lock for the whole of a function: `@Lock()`."""


class _Leavable(Protocol):
    def __exit__(self, *exc_info: Any) -> Any: ...


_Left = TypeVar("_Left", bound=_Leavable)
_Handler = Callable[[int, types.FrameType | None], Any]
_NUMBERS = sorted(map(int, signal.valid_signals()), key=lambda number: number != signal.SIGINT)
"""The most likely signal is held first and released last."""
_WATCHES = 4
"""Callbacks that make up for an exit: the next signal of a burst may strike one of them before its first line."""
_held: dict[int, _Handler] = {}
"""The user's handlers while ours replace them. Only the main thread is ever interrupted, and holds any.

Handlers are replaced instead of blocking signals: a blocked signal goes to another thread of the process, and Python runs its
handler in the main thread anyway.
"""
_waiting: list[int] = []


def _note_signal(number: int, frame: types.FrameType | None) -> None:
    if number not in _waiting:
        _waiting.append(number)


def _hold_signals() -> None:
    """Replace the user's handlers. All are replaced even if a signal arrives meanwhile."""
    try:
        for number in _NUMBERS:
            handler = getsignal(number)
            if callable(handler) and handler is not _note_signal:
                _held[number] = handler
                set_handler(number, _note_signal)
    except BaseException:
        _hold_signals()
        raise


def _release_signals() -> None:
    """Restore the user's handlers, except where the code inside has set another, and deliver delayed signals."""
    try:
        while _held:
            number = next(reversed(_held))
            if getsignal(number) is _note_signal:
                set_handler(number, _held[number])
            del _held[number]
        if _waiting:
            number = _waiting.pop(0)
            handler = getsignal(number)
            if callable(handler):
                handler(number, sys._getframe(1))
    finally:  # whatever has struck, or was raised
        if _held or _waiting:
            _release_signals()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def is_from_handler(error: BaseException) -> bool:
    """Return whether the handler of a signal raised it, wherever the main thread was."""
    if not _is_main_thread():
        return False
    users = [*map(getsignal, _NUMBERS), *_held.values()]
    functions = [getattr(each, "__func__", each) for each in users]
    codes = [each.__code__ for each in functions if isinstance(each, types.FunctionType)]
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


class uninterrupted:
    """`with uninterrupted(): ...`: signals take effect at the end of the outermost such block.

    This is a class because a dropped generator would hold signals when it is collected.
    """

    def __enter__(self) -> None:
        self._holds = not _held and _is_main_thread()
        if self._holds:
            try:
                _hold_signals()
            except BaseException:
                _release_signals()
                raise

    def __exit__(self, *exc_info: object) -> None:
        if self._holds:
            _release_signals()


class interruptible:
    """User code inside an `uninterrupted` block: new and delayed signals take effect at once."""

    def __enter__(self) -> None:
        self._releases = bool(_held) and _is_main_thread()
        if self._releases:
            _release_signals()

    def __exit__(self, *exc_info: object) -> None:
        if self._releases:
            _hold_signals()


class sure_exit:
    """An `__exit__` that is completed even if a signal arrives before its first line.

    A `with` statement looks up `__exit__` before it calls `__enter__`, and releases it at the end, whatever happened. The
    class has an attribute `_is_open`, true while there is something to end.
    """

    def __init__(self, leave: Callable[..., Any]) -> None:
        self._leave = leave

    def __get__(self, owner: Any, kind: type | None = None) -> Callable[..., Any]:
        if owner is None:
            return self._leave
        if owner._is_open:  # called by hand
            return types.MethodType(self._leave, owner)
        found, whose = functools.partial(self._leave, owner), weakref.ref(owner)

        def make_up(_: object) -> None:
            owner = whose()
            if owner is not None and owner._is_open:
                self._leave(owner, None, None, None)

        owner.__dict__["_let_go"] = [weakref.ref(found, make_up) for _ in range(_WATCHES)]
        return found


def all_or_nothing(enter: Callable[[_Left], None]) -> Callable[[_Left], _Left]:
    """Return an `__enter__` that calls `__exit__` if it fails or is interrupted."""

    @functools.wraps(enter)
    def enter_whole(self: _Left) -> _Left:
        try:
            with uninterrupted():
                enter(self)
        except BaseException:
            with uninterrupted():
                self.__exit__(*sys.exc_info())
            raise
        return self

    return enter_whole


class no_gradients:
    """`with no_gradients(): ...`, invisible to function modes."""

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch_internals.set_grad_enabled(False)

    def __exit__(self, *exc_info: object) -> None:
        torch_internals.set_grad_enabled(self._before)
