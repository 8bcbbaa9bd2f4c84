"""The memory figures of virtual GPUs, in the shape in which CUDA's allocator reports them."""

from __future__ import annotations

from typing import Any

from devwidget.gpus import errors as cuda_errors
from devwidget.gpus import machine
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.state import Account


def _account_of(index: int) -> Account:
    """What the allocator knows of a GPU; its statistics are asked of no driver.

    Raises:
        RuntimeError: if there is no such GPU.
    """
    if index >= machine.count_gpus():
        raise cuda_errors.no_statistics(index)
    return SimulationState.ledger.account_of(machine.check_index(index))


def memory_stats(index: int) -> dict[str, Any]:
    """What `torch.cuda.memory_stats_as_nested_dict` returns."""
    return _account_of(index).describe_statistics()


def free_and_total(index: int) -> tuple[int, int]:
    """What `torch.cuda.mem_get_info` returns: cached bytes are not free."""
    account = SimulationState.ledger.account_of(machine.check_index(index))
    return account.free, account.capacity


def reset_totals(index: int) -> None:
    """Start what went in and out again, on a card."""
    _account_of(index).reset_totals()


def memory_snapshot(mempool: object = None) -> dict[str, Any]:
    """The segments of cards, without a history."""
    SimulationState.ledger.settle_freed()
    accounts = SimulationState.ledger.accounts
    found = [segment for index, account in enumerate(accounts) for segment in account.list_segments(index)]
    return {"segments": found, "device_traces": [[] for _ in accounts], "allocator_settings": {}, "external_annotations": []}


def memory_fraction(index: int) -> float:
    """The part of a GPU's memory that may be used."""
    account = SimulationState.ledger.account_of(machine.check_index(index))
    return account.limit / account.capacity


def reset_peaks(index: int) -> None:
    """Start the peaks of a GPU again."""
    _account_of(index)
    SimulationState.ledger.reset_peaks(index)


def empty_cache() -> None:
    """Give back what is cached on all GPUs."""
    # Asked for at each call, as in the tables: every simulation has a ledger of its own.
    SimulationState.ledger.release_cache()


C_FUNCTIONS: dict[str, Any] = {
    "memoryStats": memory_stats,
    "resetPeakMemoryStats": reset_peaks,
    "resetAccumulatedMemoryStats": reset_totals,
    "memorySnapshot": memory_snapshot,
    **dict.fromkeys(("record_memory_history", "record_memory_history_legacy"), lambda *args: None),
    "emptyCache": empty_cache,
    "clearCublasWorkspaces": lambda: SimulationState.ledger.drop_workspaces(),
    "setMemoryFraction": lambda part, index: SimulationState.ledger.account_of(machine.check_index(index)).limit_to(part),
    "getMemoryFraction": memory_fraction,
    "getAllocatorBackend": lambda: "native",
    "getMemoryInfo": free_and_total,
}
"""Behind `_cuda_`."""

ACCELERATOR: dict[str, Any] = {
    "isAllocatorInitialized": lambda: True,
    "emptyCache": empty_cache,
    "emptyHostCache": lambda: None,
    "getDeviceStats": memory_stats,
    "resetPeakStats": reset_peaks,
    "resetAccumulatedStats": reset_totals,
    "getMemoryInfo": free_and_total,
}
"""Behind `_accelerator_`."""
