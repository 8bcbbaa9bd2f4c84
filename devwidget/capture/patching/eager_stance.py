"""The stance of torch's compiler while somebody watches: eager originals run, in the whole process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from devwidget.capture.interrupts import Lock
from devwidget.capture.undo import Undo

_lock = Lock()


class _Stance:
    """What `torch.compiler.set_stance` has given: one for all who watch.

    torch puts stances back as if the last to begin were the first to end. So ours is never put back: it becomes that which it
    has replaced, wherever it stands by then.
    """

    def __init__(self) -> None:
        self._taken: Any = None
        self._fields: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._eager: dict[str, Any] = {}

    def take_stance(self) -> None:
        """Take it; whatever strikes meanwhile, `end` gives back what was taken."""
        self._taken = torch.compiler.set_stance("force_eager")
        with contextlib.suppress(AttributeError, TypeError):  # stances are made otherwise
            self._fields, self._before = vars(self._taken.stance), vars(self._taken.prev)
        self._eager = dict(self._fields)

    def force_eager(self) -> None:
        """Be what is eager."""
        self._fields.update(self._eager)

    def lift_stance(self) -> None:
        """Be what was there before."""
        self._fields.update(self._before)

    def end_stance(self) -> None:
        """Be what was there before, for good."""
        if self._taken is not None and not self._before:
            self._taken.__exit__(None, None, None)
        self.lift_stance()


_watchers: list[object] = []
_lifting: list[object] = []
_stance: _Stance | None = None


def force_eager(undo: Undo) -> bool:
    """Have torch compile nothing and run the eager originals, until the last who asked for it leaves. False if torch cannot.

    A stance that the user takes meanwhile stays, and gives back later one that means what was there before.
    """
    watcher = object()
    undo.add_step(_leave_watcher, watcher)
    return _enter_watcher(watcher)


@contextlib.contextmanager
def lift_stance() -> Iterator[None]:
    """The stance is as if nobody watched, for all threads."""
    block = object()
    with Undo() as undo:
        undo.add_step(_end_lift, block)
        _begin_lift(block)
        yield


@_lock
def _enter_watcher(watcher: object) -> bool:
    global _stance
    _watchers.append(watcher)
    if _stance is None:
        try:
            _stance = _Stance()
            _stance.take_stance()
        except Exception:  # torch refuses inside of compiled code; and one that has no stances, or others, raises anything
            return False
        if _lifting:
            _stance.lift_stance()
    return True


@_lock
def _leave_watcher(watcher: object) -> None:
    global _stance
    _watchers[:] = [each for each in _watchers if each is not watcher]
    if not _watchers and _stance is not None:
        _stance.end_stance()
        _stance = None


@_lock
def _begin_lift(block: object) -> None:
    _lifting.append(block)
    if _stance is not None:
        _stance.lift_stance()


@_lock
def _end_lift(block: object) -> None:
    _lifting[:] = [each for each in _lifting if each is not block]
    if _stance is not None and not _lifting:
        _stance.force_eager()
