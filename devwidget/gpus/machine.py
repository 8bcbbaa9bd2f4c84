"""The virtual machine that is running: its GPUs, which are visible, the current GPU and stream of each thread, and the figures
that torch reports of them and of their memory."""

from __future__ import annotations

import contextlib
import os
import threading
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import torch

from devwidget.capture.devices import compose_memory, read_memory
from devwidget.capture.memory.roles import MemoryBlock
from devwidget.gpus import labels, torch_internals
from devwidget.gpus.state import Account, Ledger, Listener, simulation
from devwidget.records.device import CUDA
from devwidget.records.memory import DeviceMemory

VERSION = "12.8"
"""Of CUDA, which torch would be built for."""
ARCHITECTURE = "sm_80"
NAME = "devwidget virtual GPU"


_FIGURES = """major 8 minor 0 multi_processor_count 108 warp_size 32 max_threads_per_multi_processor 2048
max_threads_per_block 1024 regs_per_multiprocessor 65536 shared_memory_per_block 49152 shared_memory_per_block_optin 166912
shared_memory_per_multiprocessor 167936 L2_cache_size 41943040 clock_rate 1410000 memory_clock_rate 1593000
memory_bus_width 5120 pci_device_id 0 pci_domain_id 0 is_integrated 0 is_multi_gpu_board 0""".split()
"""Of an A100."""


class CudaProperties(types.SimpleNamespace):
    """What `torch.cuda.get_device_properties` returns for a virtual GPU."""

    def __init__(self, total_memory: int, number: int) -> None:
        figures = zip(_FIGURES[::2], map(int, _FIGURES[1::2]), strict=True)
        uuid = uuid5(NAMESPACE_DNS, f"devwidget-{number}")
        super().__init__(name=NAME, gcnArchName=NAME, total_memory=total_memory, uuid=uuid, pci_bus_id=number, **dict(figures))

    def __repr__(self) -> str:
        """As torch's own. Source: `registerCudaDeviceProperties` in `csrc/cuda/Module.cpp`."""
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, pci_domain_id={self.pci_domain_id}, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


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
    given = os.environ.get(CUDA.visible_variable)
    # Set before the simulation, a list was of the real GPUs if there are any; an empty one hid them, and nobody asks for
    # virtual ones to see none of them.
    is_of_real = torch_internals.has_real() or not _parse_visible(given or "", len(simulation.capacities))
    simulation.ignored_variable = given if is_of_real else None
    _update_visible(given)
    _current.index, _current.streams = 0, _Current.streams


def count_gpus() -> int:
    """How many GPUs the program sees."""
    variable = os.environ.get(CUDA.visible_variable)
    if not simulation.is_in_use and variable != simulation.visible_variable:
        _update_visible(variable)
    return len(simulation.visible)


def _update_visible(variable: str | None) -> None:
    simulation.visible_variable = variable
    count = len(simulation.capacities)
    if variable is None or variable == simulation.ignored_variable:
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


# A fork copies this process: what it had used of a GPU is all that tells the child.
os.register_at_fork(after_in_child=lambda: setattr(simulation, "is_forked", simulation.is_in_use))


_INVALID_ORDINAL = (
    "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
    "\nFor more detailed error information, run with CUDA_LOG_FILE=stderr"
    "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
"""Source: `CUDAMiscFunctions.cpp` and `CUDAException.cpp`."""
_FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"
)
"""Source: `torch/cuda/__init__.py`, `_lazy_init`."""


def check_index(index: int) -> int:
    """Return the index, if there is such a GPU; raise what CUDA raises if not."""
    if simulation.is_forked or 0 <= index < count_gpus():
        begin_use()
        return index
    raise torch.AcceleratorError(_INVALID_ORDINAL)


def begin_use() -> None:
    """Note that the program uses GPUs from now on; in a child of a process that has used one raise as CUDA does."""
    if simulation.is_forked:
        raise RuntimeError(_FORKED)
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


def ordinal_of(device: torch.device) -> int:
    """The index of a GPU, the current one where it names none."""
    index: Any = device.index  # None for a plain type; the stub denies it
    return check_index(current_index() if index is None else index)


def _account_of(index: int) -> Account:
    """What the allocator knows of a GPU; its statistics are asked of no driver."""
    if index >= count_gpus():
        # The number is printed as a character. Source: `CUDACachingAllocator.cpp`.
        raise RuntimeError(f"Invalid device argument {chr(index % 256)}: did you call init?")
    return _checked_account(index)


def _checked_account(index: int) -> Account:
    return simulation.ledger.account_of(check_index(index))


def _memory_stats(index: int) -> dict[str, Any]:
    return _account_of(index).describe_statistics()


def free_and_total(index: int) -> tuple[int, int]:
    """What `torch.cuda.mem_get_info` returns: cached bytes are not free."""
    account = _checked_account(index)
    return account.free, account.capacity


def _memory_snapshot(mempool: object = None) -> dict[str, Any]:
    simulation.ledger.settle_freed()
    accounts = simulation.ledger.accounts
    found = [segment for index, account in enumerate(accounts) for segment in account.list_segments(index)]
    traces = [simulation.memory_history.list_events(index) for index in range(len(accounts))]
    return {"segments": found, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _record_memory_history(
    enabled: str | None, context: str | None, stacks: str, max_entries: int, clear_history: bool = False, *others: object
) -> None:
    ledger, history = simulation.ledger, simulation.memory_history
    ledger.leave(history)
    if enabled is None or clear_history:
        history.clear()
    if enabled == "all":  # "state" keeps no events
        history.start(context, max_entries, lambda index: ledger.accounts[index].free)
        ledger.listen(history)


def _memory_fraction(index: int) -> float:
    account = _checked_account(index)
    return account.limit / account.capacity


def _empty_cache() -> None:
    # Not the method itself: every simulation has a ledger of its own.
    simulation.ledger.release_cache()


MEMORY_FUNCTIONS: dict[str, Any] = {
    "memoryStats": _memory_stats,
    "resetPeakMemoryStats": lambda index: _account_of(index).reset_peaks(),
    "resetAccumulatedMemoryStats": lambda index: _account_of(index).reset_totals(),
    "memorySnapshot": _memory_snapshot,
    "record_memory_history": _record_memory_history,
    "record_memory_history_legacy": lambda *args: None,
    "setMemoryMetadata": lambda metadata: setattr(simulation.memory_history, "metadata", metadata),
    "getMemoryMetadata": lambda: simulation.memory_history.metadata,
    "emptyCache": _empty_cache,
    "clearCublasWorkspaces": lambda: simulation.ledger.drop_workspaces(),
    "setMemoryFraction": lambda part, index: _checked_account(index).limit_to(part),
    "getMemoryFraction": _memory_fraction,
    "getAllocatorBackend": lambda: "native",
    "getMemoryInfo": free_and_total,
}
"""Behind `_cuda_`."""

ACCELERATOR_MEMORY: dict[str, Any] = {
    "isAllocatorInitialized": lambda: True,
    "emptyCache": _empty_cache,
    "emptyHostCache": lambda: None,
    "getDeviceStats": _memory_stats,
    "resetPeakStats": MEMORY_FUNCTIONS["resetPeakMemoryStats"],
    "resetAccumulatedStats": MEMORY_FUNCTIONS["resetAccumulatedMemoryStats"],
    "getMemoryInfo": free_and_total,
}
"""Behind `_accelerator_`."""


def watch_allocations(listener: Listener, on_guess: Callable[[], None]) -> tuple[Account, ...]:
    """Watch the running simulation, which continues when a GPU is full. Returns the accounts of its GPUs.

    Args:
        listener: receives each allocation, and each that does not fit.
        on_guess: called when the program reads a choice that was guessed; without it nothing is guessed.
    """
    ledger = simulation.ledger
    ledger.listen(listener)
    simulation.on_guess = on_guess
    for account in ledger.accounts:
        account.is_endless = True
    return ledger.accounts


def list_blocks() -> set[MemoryBlock]:
    """List the blocks that are in use in the running simulation."""
    simulation.ledger.settle_freed()
    return simulation.ledger.blocks


class VirtualMemory:
    """The memory of the running simulation, as a recording watches it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.count = ledger, len(ledger.accounts)
        self.listen, self.leave = ledger.listen, ledger.leave
        self._gpus = read_memory(self.count)[: self.count]

    def devices(self) -> tuple[DeviceMemory, ...]:
        """The state of the GPUs now, or at the end of their simulation."""
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

    def follow(self, blocks: Collection[MemoryBlock]) -> Callable[[], Collection[MemoryBlock]]:
        """Follow these blocks; return what lists those in use."""
        ledger, followed = self._ledger, frozenset(blocks)

        def find_living() -> Collection[MemoryBlock]:
            with ledger.lock:
                ledger.settle_freed()
                return followed & ledger.blocks

        return find_living

    def mode(self) -> contextlib.AbstractContextManager[object]:
        """Nothing: the ledger reports the allocations of every thread."""
        return contextlib.nullcontext()

    blocks_of = staticmethod(labels.blocks_of)
