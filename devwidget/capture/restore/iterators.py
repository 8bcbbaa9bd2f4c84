"""Iterators that a model holds: those over a sequence are set back, of others it is said that they have moved on."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterable
from typing import Any

from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message

_OVER_SEQUENCES: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))), type(iter("")), type(iter(b"")))
_ENTRIES: dict[None, None] = {}
_WITH_LENGTH: tuple[type, ...] = (
    type(iter(_ENTRIES)), type(iter(_ENTRIES.values())), type(iter(_ENTRIES.items())), type(iter(frozenset())),
    type(reversed([])),
)  # fmt: skip


class IteratorState:
    """How far one iterator was."""

    def __init__(self, owner: Any) -> None:
        self.owner, self._position = owner, _position(owner)

    def parts(self) -> Iterable[Any]:
        """What it runs over is not searched."""
        return ()

    labelled = parts

    def put_back(self) -> None:
        """Set it back.

        Raises:
            NotRestored: if it has moved on and cannot be set back.
        """
        now = _position(self.owner)
        if now == self._position:
            return
        if type(now) is int and type(self._position) is int:
            self.owner.__setstate__(self._position)
        else:
            raise NotRestored(Message("an iterator that has moved on"))


def is_iterator(kind: type) -> bool:
    """Whether the position of iterators of a type can be told without moving them."""
    return any(kind is each for each in (*_OVER_SEQUENCES, *_WITH_LENGTH, itertools.count, types.GeneratorType))


def _position(iterator: Any) -> object:
    """An index where it can be set again, else what tells one position from another."""
    kind = type(iterator)
    if kind is itertools.count:
        return repr(iterator)
    if kind is types.GeneratorType:
        return None if iterator.gi_frame is None else str(iterator.gi_frame.f_lasti)
    state: tuple[Any, ...] = iterator.__reduce__() if kind in _OVER_SEQUENCES else ()
    return state[2] if len(state) == 3 else str(iterator.__length_hint__())
