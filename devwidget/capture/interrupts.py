"""Interrupts: signals wait while something is put in or taken out, and an exit that was cut short is made up for."""

from __future__ import annotations

import contextlib
import functools
import itertools
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
from typing import Any, Generic, Protocol, TypeVar

import torch

from devwidget.capture import torch_internals


class Lock(RLock, contextlib.ContextDecorator):  # type: ignore[misc]  # final for the type checker alone
    """A lock for the whole of a function: `@Lock()`.

    The last line of a `with` statement can be struck like any other, and would leave a lock taken for ever.
    """


class _Enterable(Protocol):
    inside: bool

    def __exit__(self, *exc_info: Any) -> Any: ...


WATCHES = 4
"""Callbacks that make up for an exit: the next signal of a burst may strike one of them before its first line."""

_Entered = TypeVar("_Entered", bound=_Enterable)
_R = TypeVar("_R")
_Handler = Callable[[int, types.FrameType | None], Any]
_NUMBERS = sorted(map(int, signal.valid_signals()), key=lambda number: number != signal.SIGINT)
"""The most likely one is held first, and handed back last."""


def _python_handlers() -> dict[int, _Handler]:
    """Handlers written in Python, each of which may raise wherever the main thread is; no other thread is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = list(map(getsignal, _NUMBERS))
    return dict(itertools.compress(zip(_NUMBERS, found, strict=True), map(callable, found)))


def is_from_handler(error: BaseException) -> bool:
    """Whether the handler of a signal has raised it, wherever the main thread was."""
    users = [each.user_handler(number) if isinstance(each, _Held) else each for number, each in _python_handlers().items()]
    functions = [getattr(each, "__func__", each) for each in users]
    codes = [each.__code__ for each in functions if isinstance(each, types.FunctionType)]
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


class _Held:
    """A handler in place of the user's that only remembers.

    Handlers are exchanged and no signals are blocked: a blocked signal goes to another thread of the process, and Python
    runs its handler in the main thread all the same.
    """

    def __init__(self) -> None:
        self._users: dict[int, _Handler] = {}
        self._waiting: list[int] = []

    def __call__(self, number: int, frame: types.FrameType | None) -> None:
        if number not in self._waiting:
            self._waiting.append(number)

    def user_handler(self, number: int) -> _Handler:
        """The user's handler."""
        return self._users[number]

    def hold_signals(self, handlers: dict[int, _Handler]) -> None:
        """Hold back the signals that have one of these handlers, until `release_signals`."""
        for number, users in handlers.items():
            if not isinstance(users, _Held):
                self._users[number] = users
                set_handler(number, self)

    def release_signals(self) -> None:
        """Put the user's handlers back, but where the code inside has set another."""
        for number in reversed(self._users):
            if getsignal(number) is self:
                set_handler(number, self._users[number])

    def hand_on(self) -> None:
        """Give each signal that has waited to the user's handler, in the order in which they came, whichever of them raises."""
        if self._waiting:
            number = self._waiting.pop(0)
            try:
                self._users[number](number, sys._getframe(1))
            finally:
                self.hand_on()


def _held_now() -> _Held | None:
    """What holds signals in this thread; only outside all blocks every number is asked."""
    here = threading.current_thread() is threading.main_thread()
    return next((each for each in map(getsignal, _NUMBERS) if type(each) is _Held), None) if here else None


class sure_exit(Generic[_R]):
    """An `__exit__` that runs even if an exception strikes before its first line, or cuts it short.

    A `with` statement looks its `__exit__` up before it calls `__enter__`, and lets go of what it found in the end,
    whatever became of the call. What it finds here is watched for that moment, and what is left to do is done then. Such
    an `__exit__` must bear to be called again, and before `__enter__` is through. Its class has an attribute `inside`,
    False at first, which `__enter__` sets first of all.
    """

    def __init__(self, leave: Callable[..., _R]) -> None:
        self._leave = leave

    def __get__(self, owner: Any, kind: type | None = None) -> Callable[..., _R]:
        if owner is None:
            return self._exit_surely
        if owner.inside:  # called by hand
            return types.MethodType(self._exit_surely, owner)
        found = functools.partial(self._exit_surely, owner)

        def make_up(_: object) -> None:
            self._make_up(owner)

        owner.__dict__["_let_go"] = [weakref.ref(found, make_up) for _ in range(WATCHES)]
        return found

    def _exit_surely(self, owner: Any, /, *exc_info: Any) -> _R:
        out = self._leave(owner, *exc_info)
        owner.inside = False
        owner.__dict__.pop("_let_go", None)
        return out

    def _make_up(self, owner: Any) -> None:
        if owner.inside:
            with contextlib.suppress(Exception):  # what cut it short is on its way already
                self._exit_surely(owner, None, None, None)


class uninterrupted:
    """`with uninterrupted() as held: ...`: signals take effect at the end of the outermost such block.

    A class and not a generator: a generator that is dropped half-way would hold signals when it is collected.
    """

    inside = False

    def __init__(self) -> None:
        self._held = _Held()

    def __enter__(self) -> _Held:
        self.inside = True
        if type(getsignal(_NUMBERS[0])) is not _Held:  # the first that is held; where it is ignored all are asked
            handlers = _python_handlers()
            if not any(type(each) is _Held for each in handlers.values()):
                self._held.hold_signals(handlers)
        return self._held

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        self._held.release_signals()
        self._held.hand_on()


class interruptible:
    """The user's own code inside an `uninterrupted` block: signals, and those that have waited, take effect at once."""

    inside = False

    def __enter__(self) -> None:
        self._held = _held_now()
        if self._held is not None:
            self.inside = True
            self._held.release_signals()
            self._held.hand_on()

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        if self._held is not None:
            self._held.hold_signals(_python_handlers())


def all_or_nothing(enter: Callable[[_Entered], None]) -> Callable[[_Entered], _Entered]:
    """Make an `__enter__` that calls `__exit__` if it fails or is interrupted, of a method that puts things in."""

    @functools.wraps(enter)
    def enter_whole(self: _Entered) -> _Entered:
        self.inside = True
        try:
            with uninterrupted() as held:
                try:
                    enter(self)
                    held.hand_on()
                except BaseException:  # all of it is taken out before the next signal can strike
                    self.__exit__(*sys.exc_info())
                    raise
        except BaseException:  # one that has struck while the handlers were put back
            self.__exit__(*sys.exc_info())
            raise
        return self

    return enter_whole


class no_gradients:
    """`with no_gradients(): ...`: grad mode is what it was afterwards, whatever strikes on the way out."""

    inside = False

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        self.inside = True
        torch_internals.set_grad_enabled(False)

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        torch_internals.set_grad_enabled(self._before)
