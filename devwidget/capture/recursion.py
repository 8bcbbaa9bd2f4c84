"""Room for the frames that a recording adds: a program that fits the recursion limit plain fits it recorded."""

from __future__ import annotations

import sys

from devwidget.capture.patching.lock import Lock
from devwidget.capture.undo import Undo

_AT_THE_LEAF = 200
"""Frames that one operator and one fault take below the user's innermost line."""
_lock = Lock()


class _Limit:
    """The limit of the process while recordings run, which may overlap in any order."""

    recordings: tuple[Undo, ...] = ()
    before = ours = 0


def deepen_recursion(undo: Undo) -> None:
    """Raise the limit in proportion: with hooks torch runs a module call in four frames where it takes three without."""
    undo.add_step(_put_back, undo)
    _raise_limit(undo)


@_lock
def _raise_limit(recording: Undo) -> None:
    if not _Limit.recordings:
        before = sys.getrecursionlimit()
        _Limit.before, _Limit.ours = before, before * 4 // 3 + _AT_THE_LEAF
        sys.setrecursionlimit(_Limit.ours)
    _Limit.recordings = (*_Limit.recordings, recording)


@_lock
def _put_back(recording: Undo) -> None:
    _Limit.recordings = tuple(each for each in _Limit.recordings if each is not recording)
    if not _Limit.recordings and sys.getrecursionlimit() == _Limit.ours:  # else the program has set one meanwhile
        sys.setrecursionlimit(_Limit.before)
