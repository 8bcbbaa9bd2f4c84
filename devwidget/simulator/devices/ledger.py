"""Bytes held on every virtual GPU, counted as the accelerator's caching allocator counts them."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from devwidget.capture.memory.block import Block
from devwidget.records.memory import in_blocks


class Listener(Protocol):
    """Is told of every allocation, as it is counted."""

    def taken(self, block: Block, held: int) -> None:
        """A block is in use from now on; its GPU holds `held` bytes with it."""

    def freed(self, block: Block) -> None:
        """A block is not in use any more."""

    def refused(self, index: int, size: int, held: int) -> None:
        """`size` bytes did not fit on GPU `index`, which holds `held`."""


@dataclass(slots=True)
class Account:
    """What one virtual GPU holds.

    Attributes:
        capacity: bytes that fit.
        held: bytes in blocks that are in use now; `peak` is the most since the last reset.
        reserved: bytes taken from the GPU and not given back by `empty_cache`.
    """

    capacity: int
    held: int = 0
    peak: int = 0
    reserved: int = 0
    peak_reserved: int = 0
    requested: int = 0
    allocated_total: int = 0
    freed_total: int = 0
    allocations: int = 0
    frees: int = 0
    ooms: int = 0
    active: int = 0
    peak_active: int = 0


@dataclass(slots=True)
class Ledger:
    """The accounts of all virtual GPUs.

    Storages die at any moment, in any thread, inside the garbage collector: `freed` only collects
    (append is atomic), and the accounts are brought up to date when somebody looks.

    Attributes:
        unit: every allocation is a multiple of this many bytes.
        blocks: those in use.
        listeners: who is told.
    """

    accounts: tuple[Account, ...]
    unit: int = 1
    freed: deque[Block] = field(default_factory=deque)
    blocks: set[Block] = field(default_factory=set)
    listeners: tuple[Listener, ...] = ()
    lock: threading.RLock = field(default_factory=threading.RLock)

    def settle(self) -> None:
        """Take note of the storages that died."""
        with self.lock:
            while self.freed:
                block = self.freed.popleft()
                account = self.accounts[block.index]
                account.held -= block.size
                account.freed_total += block.size
                account.frees += 1
                account.active -= 1
                self.blocks.discard(block)
                for listener in self.listeners:
                    listener.freed(block)

    def fits(self, index: int, size: int) -> bool:
        """Whether `size` more bytes fit on GPU `index`; if not, the listeners are told."""
        account = self.accounts[index]
        if account.held + size <= account.capacity:
            return True
        self.settle()
        if account.held + size <= account.capacity:
            return True
        for listener in self.listeners:
            listener.refused(index, size, account.held)
        return False

    def take(self, index: int, size: int) -> Block:
        """Note that GPU `index` now holds `size` bytes more."""
        with self.lock:
            if self.freed:
                self.settle()
            account = self.accounts[index]
            account.allocations += 1
            account.allocated_total += size
            account.active = active = account.active + 1
            if active > account.peak_active:
                account.peak_active = active
            account.held = held = account.held + size
            if held > account.peak:
                account.peak = held
            if held > account.reserved:
                account.reserved = held
                account.peak_reserved = max(account.peak_reserved, held)
            block = Block(index, size)
            self.blocks.add(block)
            for listener in self.listeners:
                listener.taken(block, held)
            return block

    def account(self, index: int) -> Account:
        """The account of GPU `index`, up to date."""
        self.settle()
        return self.accounts[index]

    def reset_peaks(self, index: int) -> None:
        """Let the peaks of GPU `index` start again from what it holds now."""
        account = self.account(index)
        account.peak, account.peak_reserved, account.peak_active = account.held, account.reserved, account.active

    def release_cache(self) -> None:
        """Give back what is reserved but unused, on all GPUs."""
        self.settle()
        for account in self.accounts:
            account.reserved = account.held

    def block_bytes(self, requested_bytes: int) -> int:
        """Bytes that one allocation really takes."""
        return in_blocks(requested_bytes, self.unit)
