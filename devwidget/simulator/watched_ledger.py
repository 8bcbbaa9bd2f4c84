"""A ledger that tells of every allocation as it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from devwidget.simulator.labels import Books
from devwidget.simulator.ledger import Ledger


@dataclass(slots=True)
class WatchedLedger(Ledger):
    """A ledger with an onlooker.

    Attributes:
        watcher: called with the ordinal of the GPU and the bytes that it holds now.
    """

    watcher: Callable[[int, int], None] = lambda index, held: None

    def take(self, index: int, size: int) -> None:
        """Note that GPU `index` now holds `size` bytes more, and tell."""
        Ledger.take(self, index, size)
        self.watcher(index, self.accounts[index].held)


def watch(watcher: Callable[[int, int], None]) -> None:
    """Watch the running simulation, before anything is allocated in it; it ends with the simulation."""
    Books.ledger = WatchedLedger(Books.ledger.accounts, watcher=watcher)
