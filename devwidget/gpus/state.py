"""The state of the running simulation: the bytes that are held on each GPU, and what is done about the values of tensors."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import torch

from devwidget.capture.memory.allocation_history import MemoryHistory
from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.patching.mode_stack import redispatch
from devwidget.records.device import CUDA
from devwidget.records.memory import in_blocks

UNIT = CUDA.block_bytes
"""Bytes: what a block takes is a multiple of this."""


class Listener(Protocol):
    """Receives every allocation when it is counted."""

    def taken(self, block: MemoryBlock, held: int) -> None:
        """A block is in use from now on; its GPU holds `held` bytes with it."""

    def freed(self, block: MemoryBlock) -> None:
        """A block is not in use any more."""

    def refused(self, index: int, size: int, held: int) -> None:
        """`size` bytes did not fit on GPU `index`, which holds `held`."""


@dataclass(slots=True)
class Account:
    """What one virtual GPU holds, added up: a part that places blocks in segments derives from it.

    Attributes:
        capacity: bytes that the GPU has, `limit` those that the program may use.
        context: of the capacity, bytes that no tensor can have.
        is_endless: what does not fit is reported to the listeners, and allocated nevertheless.
        workspace: bytes that cuBLAS takes for each of its handles; every thread has one.
        workspaces: those that it has taken.
        held: bytes in blocks that are in use now; `peak` is the most since the last reset.
        reserved: bytes taken from the GPU and not given back by `empty_cache`.
    """

    capacity: int
    context: int = 0
    is_endless: bool = False
    workspace: int = 0
    workspaces: dict[object, MemoryBlock] = field(default_factory=dict)
    held: int = 0
    peak: int = 0
    reserved: int = 0
    peak_reserved: int = 0
    requested: int = 0
    allocated_total: int = 0
    allocations: int = 0
    ooms: int = 0
    active: int = 0
    peak_active: int = 0
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.limit = self.capacity

    def limit_to(self, fraction: float) -> None:
        """Let the program use a part of the capacity alone."""
        self.limit = int(self.capacity * fraction)

    @property
    def free(self) -> int:
        """Bytes that another process could have."""
        return self.capacity - self.context - self.reserved

    @property
    def peak_in_segments(self) -> int:
        """The most that was reserved in segments, as a whole; 0 where there are none."""
        return 0

    def place_block(self, index: int, requested: int, stream: int = 0) -> MemoryBlock | None:
        """A block for so many bytes, on a stream; None if they do not fit."""
        size = in_blocks(requested, UNIT)
        if self.held + size <= self.limit:
            return MemoryBlock(index, size)
        self.release_cache()
        return None

    def place_beyond(self, index: int, requested: int, stream: int = 0) -> MemoryBlock:
        """A block that does not fit."""
        return MemoryBlock(index, in_blocks(requested, UNIT))

    def release_block(self, block: MemoryBlock) -> None:
        """Let a block go that had a place in a segment."""

    def is_for(self, block: MemoryBlock, requested: int) -> bool:
        """Whether a block was taken for so many bytes."""
        return block.size == in_blocks(requested, UNIT)

    def release_cache(self) -> None:
        """Give back what is reserved but unused."""
        self.reserved = self.held

    def reset_peaks(self) -> None:
        """Let the peaks start again from what is held now."""
        self.peak, self.peak_reserved, self.peak_active = self.held, self.reserved, self.active

    def reset_totals(self) -> None:
        """Start what went in and out again, where that is counted by pool."""

    def list_segments(self, index: int) -> list[dict[str, Any]]:
        """List the segments of GPU `index`, as a snapshot of CUDA's memory does; none where there are no segments."""
        return []

    def describe_statistics(self) -> dict[str, Any]:
        """Describe what is held, as `torch.cuda.memory_stats_as_nested_dict` does."""
        held = _make_figure(self.held, self.peak, self.allocated_total)
        blocks = _make_figure(self.active, self.peak_active, self.allocations)
        nothing = _make_figure(0, 0, 0)
        return {
            **dict.fromkeys(("allocated_bytes", "active_bytes", "requested_bytes"), held),
            "reserved_bytes": _make_figure(self.reserved, self.peak_reserved, self.reserved),
            **dict.fromkeys(("allocation", "active", "segment"), blocks),
            **dict.fromkeys(("inactive_split", "inactive_split_bytes"), nothing),
            **dict.fromkeys(("oversize_allocations", "oversize_segments"), nothing["all"]),
            "num_alloc_retries": 0,
            "num_ooms": self.ooms,
            "num_sync_all_streams": 0,
            "num_device_alloc": self.allocations,
            "num_device_free": 0,
            "max_split_size": -1,
        }


def _make_figure(current: int, peak: int, allocated: int) -> dict[str, dict[str, int]]:
    """One statistic; pools are not distinguished, so everything counts as large."""
    full = {"current": current, "peak": peak, "allocated": allocated, "freed": allocated - current}
    return {"all": full, "small_pool": dict.fromkeys(full, 0), "large_pool": full}


@dataclass(slots=True)
class Ledger:
    """The accounts of all virtual GPUs.

    Storages die at any moment, in any thread, inside the garbage collector: `freed` only collects
    (append is atomic), and the accounts are brought up to date when they are read.

    Attributes:
        blocks: those in use.
        listeners: objects that receive each allocation.
        current_stream: the number of the stream on which a GPU works for the calling thread.
    """

    accounts: tuple[Account, ...]
    freed: deque[MemoryBlock] = field(default_factory=deque)
    blocks: set[MemoryBlock] = field(default_factory=set)
    listeners: tuple[Listener, ...] = ()
    lock: threading.RLock = field(default_factory=threading.RLock)
    current_stream: Callable[[int], int] = lambda index: 0

    def settle_freed(self) -> None:
        """Take note of the storages that died."""
        with self.lock:
            while self.freed:
                block = self.freed.popleft()
                account = self.accounts[block.index]
                account.held -= block.size
                account.active -= 1
                account.release_block(block)
                self.blocks.discard(block)
                for listener in self.listeners:
                    listener.freed(block)

    def take_bytes(self, index: int, requested: int) -> MemoryBlock | None:
        """Note that GPU `index` now holds so many bytes more; None if they do not fit, after the listeners have heard of it."""
        with self.lock:
            if self.freed:
                self.settle_freed()
            account = self.accounts[index]
            block = account.place_block(index, requested, self.current_stream(index))
            if block is None:
                for listener in self.listeners:
                    listener.refused(index, in_blocks(requested, UNIT), account.held)
                if not account.is_endless:
                    return None
                block = account.place_beyond(index, requested, self.current_stream(index))
            size = block.size
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
            self.blocks.add(block)
            for listener in self.listeners:
                listener.taken(block, held)
            return block

    def listen(self, listener: Listener) -> Collection[MemoryBlock]:
        """Tell `listener` of each allocation from now on; returns the blocks that are in use already."""
        with self.lock:
            self.settle_freed()
            self.listeners += (listener,)
            return tuple(self.blocks)

    def leave(self, listener: Listener) -> None:
        """Stop calling `listener`."""
        with self.lock:
            self.settle_freed()
            self.listeners = tuple(each for each in self.listeners if each is not listener)

    def drop_workspaces(self) -> None:
        """Take the workspaces of all GPUs back."""
        for account in self.accounts:
            self.freed.extend(account.workspaces.values())
            account.workspaces.clear()

    def account_of(self, index: int) -> Account:
        """The account of GPU `index`, up to date."""
        self.settle_freed()
        return self.accounts[index]

    def release_cache(self) -> None:
        """Give back what is reserved but unused, on all GPUs."""
        self.settle_freed()
        for account in self.accounts:
            account.release_cache()


def _return_first(value: Any, *others: object) -> Any:
    return value


def _do_nothing(*args: object, **kwargs: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Values:
    """What is done about the values of tensors: here each has its own. A part for tensors without values does otherwise.

    Attributes:
        mode: the class of that of each thread, in place of the ordinary one; None for that.
        call_operator: runs an operator that has come down to a mode.
        call_factory: runs a factory for the device that stands for all others; its last argument says if that is meta.
        read_values: returns the tensor that has the values of another one, which may be itself.
        read_numbers: returns nested lists with Python numbers in place of tensors whose memory cannot be read.
        list_numbers: returns what a function in C++ can read, by the name that it has in errors.
        check_known: refuses what needs the values of a tensor, by its name, if they are not known.
        strip_values: returns the tensor as operators take it.
        forget_values: takes note that something unknown was written to the tensors of a tree.
        copy_known: has the copy of a storage, which comes second, know what that knows.
        run_attention: returns the result of `scaled_dot_product_attention`; None for what torch does itself.
    """

    mode: type[Any] | None = None
    call_operator: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] = redispatch
    call_factory: Callable[..., Any] = lambda func, args, kwargs, on_meta: func(*args, **kwargs)
    read_values: Callable[[torch.Tensor], torch.Tensor] = _return_first
    read_numbers: Callable[[Any], Any] = _return_first
    list_numbers: Callable[[Any, str], Any] = _return_first
    check_known: Callable[[torch.Tensor, str], None] = _do_nothing
    strip_values: Callable[[torch.Tensor], torch.Tensor] = _return_first
    forget_values: Callable[[Any], None] = _do_nothing
    copy_known: Callable[[torch.UntypedStorage, torch.UntypedStorage], None] = _do_nothing
    run_attention: Callable[..., Any] = _do_nothing


@dataclass(slots=True)
class Simulation:
    """The state of the running simulation.

    Attributes:
        is_running: whether there is one: what was imported in one, such as `torch.device`, means torch's own afterwards.
        capacities: bytes of each GPU that is built in, `open_account` what opens the account of one by them.
        compute: False if tensors have no values.
        values: what is done about these.
        ledger: of bytes.
        memory_history: of allocations, if the program has it recorded.
        visible: the GPUs that the program sees, in its order, by the variable as it was last read: `visible_variable`.
        ignored_variable: what that said of the real GPUs, if anything.
        is_in_use: whether the program has used a GPU; from then on, as on a real one, what is visible stays.
        is_forked: whether this process began as a copy of one that had used a GPU.
        on_guess: called when a program reads what was guessed; None where nothing is.
    """

    is_running: bool = False
    capacities: tuple[int, ...] = ()
    open_account: Callable[[int], Account] = Account
    compute: bool = True
    values: Values = field(default_factory=Values)
    ledger: Ledger = field(default_factory=lambda: Ledger(()))
    memory_history: MemoryHistory = field(default_factory=MemoryHistory)
    visible: tuple[int, ...] = ()
    visible_variable: str | None = None
    ignored_variable: str | None = None
    is_in_use: bool = False
    is_forked: bool = False
    on_guess: Callable[[], None] | None = None

    def become(self, other: Simulation) -> None:
        """Copy the state of another one."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))


simulation = Simulation()
"""One object for the whole process, because many hold it."""
