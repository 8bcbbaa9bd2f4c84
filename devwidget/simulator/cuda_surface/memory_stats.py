"""The memory figures of virtual GPUs, in the shape in which the accelerator's allocator reports them."""

from __future__ import annotations

from typing import Any

from devwidget.simulator.devices import machine
from devwidget.simulator.devices.simulation_state import SimulationState

POOLS = ("all", "small_pool", "large_pool")


def _figure(current: int, peak: int, allocated: int, freed: int) -> dict[str, dict[str, int]]:
    """One statistic; pools are not told apart, so everything counts as large."""
    full = {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
    return {"all": full, "small_pool": dict.fromkeys(full, 0), "large_pool": full}


def stats(index: int) -> dict[str, Any]:
    """What `torch.cuda.memory_stats_as_nested_dict` returns."""
    account = SimulationState.ledger.account(machine.checked(index))
    held = _figure(account.held, account.peak, account.allocated_total, account.freed_total)
    blocks = _figure(account.active, account.peak_active, account.allocations, account.frees)
    reserved = _figure(account.reserved, account.peak_reserved, account.reserved, 0)
    nothing = _figure(0, 0, 0, 0)
    return {
        "allocated_bytes": held,
        "active_bytes": held,
        "requested_bytes": held,
        "reserved_bytes": reserved,
        "inactive_split_bytes": nothing,
        "allocation": blocks,
        "active": blocks,
        "segment": blocks,
        "inactive_split": nothing,
        "oversize_allocations": {"current": 0, "peak": 0, "allocated": 0, "freed": 0},
        "oversize_segments": {"current": 0, "peak": 0, "allocated": 0, "freed": 0},
        "num_alloc_retries": 0,
        "num_ooms": account.ooms,
        "num_sync_all_streams": 0,
        "num_device_alloc": account.allocations,
        "num_device_free": 0,
        "max_split_size": -1,
    }


def free_and_total(index: int) -> tuple[int, int]:
    """What `torch.cuda.mem_get_info` returns: cached bytes are not free."""
    account = SimulationState.ledger.account(machine.checked(index))
    return account.capacity - account.reserved, account.capacity


def reset_peaks(index: int) -> None:
    """Start the peaks again."""
    SimulationState.ledger.reset_peaks(machine.checked(index))


def empty_cache() -> None:
    """Give back what is cached."""
    SimulationState.ledger.release_cache()


C_FUNCTIONS: dict[str, Any] = {
    "memoryStats": stats,
    "resetPeakMemoryStats": reset_peaks,
    "resetAccumulatedMemoryStats": lambda index: None,
    "memorySnapshot": lambda mempool: {"segments": [], "device_traces": [], "allocator_settings": {}},
    "record_memory_history": lambda *args: None,
    "record_memory_history_legacy": lambda *args: None,
    "emptyCache": empty_cache,
    "setMemoryFraction": lambda fraction, index: None,
    "getMemoryFraction": lambda index: 1.0,
    "getAllocatorBackend": lambda: "native",
    "getMemoryInfo": free_and_total,
}
"""Behind the prefix of the accelerator, such as `_cuda_`."""

ACCELERATOR: dict[str, Any] = {
    "isAllocatorInitialized": lambda: True,
    "emptyCache": empty_cache,
    "emptyHostCache": lambda: None,
    "getDeviceStats": stats,
    "resetPeakStats": reset_peaks,
    "resetAccumulatedStats": lambda index: None,
    "getMemoryInfo": free_and_total,
}
"""Behind `_accelerator_`."""
