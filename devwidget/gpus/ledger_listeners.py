"""Listening to the running simulation: for a plan to every allocation, for a recording as its source of memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from devwidget.capture.devices import compose_memory, read_memory
from devwidget.capture.memory.roles import FollowedBlocks, MemoryBlock
from devwidget.gpus import labels
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.state import Account, Ledger, Listener
from devwidget.records.memory import DeviceMemory


@dataclass(frozen=True)
class _Watcher:
    """Tells of allocations, and of what does not fit."""

    tell: Callable[[int, int], None]
    refuse: Callable[[int], None]

    def taken(self, block: MemoryBlock, held: int) -> None:
        self.tell(block.index, held)

    def freed(self, block: MemoryBlock) -> None: ...

    def refused(self, index: int, size: int, held: int) -> None:
        self.refuse(index)


def watch_allocations(
    watcher: Callable[[int, int], None], refused: Callable[[int], None], on_guess: Callable[[], None]
) -> tuple[Account, ...]:
    """Watch the running simulation, as long as it runs; it goes on when a GPU is full. Returns the accounts of its GPUs.

    Args:
        watcher: called after each allocation with the ordinal of a GPU and the bytes that it holds.
        refused: called with the ordinal of a GPU before an allocation that does not fit.
        on_guess: called when the program reads a choice that was guessed; without it nothing is guessed.
    """
    ledger = SimulationState.ledger
    ledger.listeners += (_Watcher(watcher, refused),)
    SimulationState.on_guess = on_guess
    for account in ledger.accounts:
        account.is_endless = True
    return ledger.accounts


def settle_accounts() -> None:
    """Bring the accounts of the running simulation up to date."""
    SimulationState.ledger.settle_freed()


def list_blocks() -> set[MemoryBlock]:
    """List the blocks that are in use in the running simulation."""
    settle_accounts()
    return SimulationState.ledger.blocks


class VirtualMemory:
    """The memory of the running simulation, as a recording watches it."""

    exact = True

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.count = ledger, len(ledger.accounts)
        self._gpus = read_memory(self.count)[: self.count]

    def devices(self) -> tuple[DeviceMemory, ...]:
        """The GPUs as they are now; of a simulation that is over, as it left them."""
        return tuple(map(self._describe_device, range(self.count)))

    def _describe_device(self, index: int) -> DeviceMemory:
        gpu, account = self._gpus[index], self._ledger.account_of(index)
        used = account.capacity - account.free
        sizes = {"allocated": account.held, "reserved": account.reserved, "used": used, "peak": account.peak}
        now = compose_memory(gpu.device, gpu.name, gpu.total, virtual=True, **sizes)
        return replace(now, card=gpu.card, uuid=gpu.uuid)

    def allocated(self, index: int) -> int:
        """Bytes in use on a GPU, up to date."""
        return self._ledger.account_of(index).held

    def listen(self, listener: Listener) -> Collection[MemoryBlock]:
        """Tell `listener` from now on; returns the blocks that are in use already."""
        with self._ledger.lock:
            self._ledger.settle_freed()
            self._ledger.listeners += (listener,)
            return tuple(self._ledger.blocks)

    def leave(self, listener: Listener) -> None:
        """Tell `listener` no more."""
        with self._ledger.lock:
            self._ledger.settle_freed()
            self._ledger.listeners = tuple(each for each in self._ledger.listeners if each is not listener)

    def follow(self, blocks: Collection[MemoryBlock]) -> FollowedBlocks:
        """Follow these blocks."""
        ledger, followed = self._ledger, frozenset(blocks)

        def find_living() -> Collection[MemoryBlock]:
            with ledger.lock:
                ledger.settle_freed()
                return followed & ledger.blocks

        return FollowedBlocks(find_living, labels.blocks_of)

    def mode(self) -> contextlib.AbstractContextManager[object]:
        """Nothing: the ledger tells of every thread."""
        return contextlib.nullcontext()

    blocks_of = staticmethod(labels.blocks_of)
