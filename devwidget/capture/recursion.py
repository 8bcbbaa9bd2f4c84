"""Room for the frames that a recording adds: a program that fits the recursion limit plain fits it recorded."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_AT_THE_LEAF = 200
"""Frames that one operator and one fault take below the user's innermost line."""


class _Limit:
    """The limit of the process while recordings run, which may overlap in any order."""

    lock = threading.Lock()
    recordings = 0
    before = ours = 0


@contextlib.contextmanager
def deeper() -> Iterator[None]:
    """Raise the limit in proportion: with hooks torch runs a module call in four frames where it takes three without."""
    with _Limit.lock:
        if not _Limit.recordings:
            _Limit.before = sys.getrecursionlimit()
            _Limit.ours = _Limit.before * 4 // 3 + _AT_THE_LEAF
            sys.setrecursionlimit(_Limit.ours)
        _Limit.recordings += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.recordings -= 1
            if not _Limit.recordings and sys.getrecursionlimit() == _Limit.ours:  # else the program has set one meanwhile
                sys.setrecursionlimit(_Limit.before)
