"""The virtual machine that is running: its GPUs, which are visible, which is current in each thread, with its stream, and what
is told of them and of their memory."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

import torch

from devwidget.capture.devices import compose_memory, read_memory
from devwidget.capture.memory.roles import FollowedBlocks, MemoryBlock
from devwidget.gpus import errors, labels, torch_internals
from devwidget.gpus.state import Account, Ledger, Listener, simulation
from devwidget.records.device import CUDA
from devwidget.records.memory import DeviceMemory

VERSION = "12.8"
"""Of CUDA, which torch would be built for."""
ARCHITECTURE = "sm_80"
ANSWERS: dict[str, object] = {"getCompiledVersion": 12080, "getDriverVersion": 12080, "getArchFlags": ARCHITECTURE}
"""What further C functions return, by their names behind `_cuda_`."""


@dataclass(frozen=True, repr=False)
class CudaProperties:
    """What `torch.cuda.get_device_properties` tells of a virtual GPU."""

    name: str
    total_memory: int
    uuid: UUID
    pci_bus_id: int
    major: int = 8
    minor: int = 0
    multi_processor_count: int = 108
    is_integrated: bool = False
    is_multi_gpu_board: bool = False
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 166912
    shared_memory_per_multiprocessor: int = 167936
    L2_cache_size: int = 41943040
    clock_rate: int = 1410000
    memory_clock_rate: int = 1593000
    memory_bus_width: int = 5120
    pci_device_id: int = 0
    pci_domain_id: int = 0
    gcnArchName: str = "devwidget virtual GPU"

    def __repr__(self) -> str:
        """As torch's own. Source: `registerCudaDeviceProperties` in `csrc/cuda/Module.cpp`."""
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, pci_domain_id={self.pci_domain_id}, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


# The GPUs of the running simulation.


DEFAULT_STREAM = 0
"""Its number, on each GPU."""


# CUDA too keeps the current device and stream for each thread.
class _Current(threading.local):
    index = 0
    streams: Mapping[int, int] = MappingProxyType({})
    """GPU -> number of its current stream, if that is not the default one. Never changed, but replaced."""


_current = _Current()


def current_index() -> int:
    """The current GPU of this thread."""
    return _current.index


def current_stream_of(gpu: int) -> int:
    """The number of the current stream of a GPU, in this thread."""
    return _current.streams.get(gpu, DEFAULT_STREAM)


def set_current_stream(gpu: int, number: int) -> None:
    """Make a stream the current one of its GPU, in this thread."""
    _current.streams = {**_current.streams, gpu: number}


def build_machine() -> None:
    """Open the accounts of the GPUs of a simulation that has begun, or has ended and has none."""
    given = _read_variable()
    # Set before the simulation, a list was of the real GPUs if there are any; an empty one hid them, and nobody asks for
    # virtual ones to see none of them.
    is_of_real = torch_internals.has_real() or not _parse_visible(given or "", len(simulation.capacities))
    simulation.ignored_variable = given if is_of_real else None
    _update_visible(given)
    _current.index, _current.streams = 0, _Current.streams


def count_gpus() -> int:
    """How many GPUs the program sees."""
    if not simulation.is_in_use and _read_variable() != simulation.visible_variable:
        _update_visible(_read_variable())
    return len(simulation.visible)


def _read_variable() -> str | None:
    return os.environ.get(CUDA.visible_variable)


def _update_visible(variable: str | None) -> None:
    simulation.visible_variable = variable
    count = len(simulation.capacities)
    every = variable is None or variable == simulation.ignored_variable
    if every or variable is None:
        simulation.visible = tuple(range(count))
    else:
        simulation.visible = _parse_visible(variable, count)
    simulation.ledger.current_stream = current_stream_of
    simulation.ledger.accounts = tuple(simulation.open_account(simulation.capacities[number]) for number in simulation.visible)


def _parse_visible(variable: str, count: int) -> tuple[int, ...]:
    """The GPUs named before the first one that does not exist; none if one is named twice. Source: CUDA's manual."""
    found: list[int] = []
    for word in variable.split(","):
        if not word.strip().isdigit() or int(word) >= count:
            break
        if int(word) in found:
            return ()
        found.append(int(word))
    return tuple(found)


def _after_fork() -> None:
    simulation.is_forked = simulation.is_in_use


# A fork copies this process: what it had used of a GPU is all that tells the child.
os.register_at_fork(after_in_child=_after_fork)


def check_index(index: int) -> int:
    """The same index, if there is such a GPU.

    Raises:
        torch.AcceleratorError: for an invalid ordinal.
    """
    if simulation.is_forked:
        raise errors.forked_child()
    if not 0 <= index < count_gpus():
        raise errors.invalid_ordinal()
    simulation.is_in_use = True
    return index


def begin_use() -> None:
    """From now on the program uses GPUs.

    Raises:
        RuntimeError: in a child of a process that has used one, as CUDA does.
    """
    if simulation.is_forked:
        raise errors.forked_child()
    if not simulation.is_in_use:
        count_gpus()  # what is visible now stays
        simulation.is_in_use = True


def set_current(index: int) -> None:
    """Make a GPU the current one of this thread."""
    _current.index = check_index(index)


def exchange_current(index: int) -> int:
    """Make a GPU the current one and return the one before; a negative index changes nothing."""
    before = current_index()
    if index < 0:
        return -1
    set_current(index)
    return before


def maybe_exchange_current(index: int) -> int:
    """As `exchange`; dynamo wants two functions."""
    return exchange_current(index)


def ordinal_of(device: torch.device) -> int:
    """The index of a GPU, the current one where it names none."""
    # None for a plain type; the stub denies it.
    index: Any = device.index
    return check_index(current_index() if index is None else index)


# The figures of their memory, in the shape in which CUDA's allocator reports them.


def _account_of(index: int) -> Account:
    """What the allocator knows of a GPU; its statistics are asked of no driver.

    Raises:
        RuntimeError: if there is no such GPU.
    """
    if index >= count_gpus():
        raise errors.no_statistics(index)
    return simulation.ledger.account_of(check_index(index))


def memory_stats(index: int) -> dict[str, Any]:
    """What `torch.cuda.memory_stats_as_nested_dict` returns."""
    return _account_of(index).describe_statistics()


def free_and_total(index: int) -> tuple[int, int]:
    """What `torch.cuda.mem_get_info` returns: cached bytes are not free."""
    account = simulation.ledger.account_of(check_index(index))
    return account.free, account.capacity


def reset_totals(index: int) -> None:
    """Start what went in and out again, on a card."""
    _account_of(index).reset_totals()


def memory_snapshot(mempool: object = None) -> dict[str, Any]:
    """The segments of cards, without a history."""
    simulation.ledger.settle_freed()
    accounts = simulation.ledger.accounts
    found = [segment for index, account in enumerate(accounts) for segment in account.list_segments(index)]
    return {"segments": found, "device_traces": [[] for _ in accounts], "allocator_settings": {}, "external_annotations": []}


def memory_fraction(index: int) -> float:
    """The part of a GPU's memory that may be used."""
    account = simulation.ledger.account_of(check_index(index))
    return account.limit / account.capacity


def reset_peaks(index: int) -> None:
    """Start the peaks of a GPU again."""
    _account_of(index)
    simulation.ledger.reset_peaks(index)


def empty_cache() -> None:
    """Give back what is cached on all GPUs."""
    # Asked for at each call, as in the tables: every simulation has a ledger of its own.
    simulation.ledger.release_cache()


MEMORY_FUNCTIONS: dict[str, Any] = {
    "memoryStats": memory_stats,
    "resetPeakMemoryStats": reset_peaks,
    "resetAccumulatedMemoryStats": reset_totals,
    "memorySnapshot": memory_snapshot,
    **dict.fromkeys(("record_memory_history", "record_memory_history_legacy"), lambda *args: None),
    "emptyCache": empty_cache,
    "clearCublasWorkspaces": lambda: simulation.ledger.drop_workspaces(),
    "setMemoryFraction": lambda part, index: simulation.ledger.account_of(check_index(index)).limit_to(part),
    "getMemoryFraction": memory_fraction,
    "getAllocatorBackend": lambda: "native",
    "getMemoryInfo": free_and_total,
}
"""Behind `_cuda_`."""

ACCELERATOR_MEMORY: dict[str, Any] = {
    "isAllocatorInitialized": lambda: True,
    "emptyCache": empty_cache,
    "emptyHostCache": lambda: None,
    "getDeviceStats": memory_stats,
    "resetPeakStats": reset_peaks,
    "resetAccumulatedStats": reset_totals,
    "getMemoryInfo": free_and_total,
}
"""Behind `_accelerator_`."""


# Who listens: a plan to every allocation, a recording as to its source of memory.


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
    ledger = simulation.ledger
    ledger.listeners += (_Watcher(watcher, refused),)
    simulation.on_guess = on_guess
    for account in ledger.accounts:
        account.is_endless = True
    return ledger.accounts


def settle_accounts() -> None:
    """Bring the accounts of the running simulation up to date."""
    simulation.ledger.settle_freed()


def list_blocks() -> set[MemoryBlock]:
    """List the blocks that are in use in the running simulation."""
    settle_accounts()
    return simulation.ledger.blocks


class VirtualMemory:
    """The memory of the running simulation, as a recording watches it."""

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
