"""Own threads: the one that runs a step, and those that the step begins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import get_ident

Inside = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes what a thread of a step enters."""


class OwnThreads:
    """Which threads work for a step; others are never counted, silenced or held up."""

    def __init__(self) -> None:
        self._idents: list[int] = []  # as often as a thread has entered

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """For this time the calling thread is one of them."""
        ident = get_ident()
        self._idents.append(ident)
        try:
            yield
        finally:
            self._idents.remove(ident)

    def are_here(self) -> bool:
        """Whether the calling thread is one of them."""
        return get_ident() in self._idents
