"""The memory figures of virtual GPUs, in the shape in which CUDA's allocator reports them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from devwidget.extras.cards.caching_allocator import CachingAllocator
from devwidget.extras.cards.pools import SegmentBlock, iterate_from
from devwidget.extras.cards.settings import NEVER
from devwidget.gpus.devices import cuda_errors, machine
from devwidget.gpus.devices.ledger import Account
from devwidget.gpus.devices.simulation_state import SimulationState

POOLS = ("all", "small_pool", "large_pool")


def _make_figure(current: int, peak: int, allocated: int, freed: int) -> dict[str, dict[str, int]]:
    """One statistic; pools are not told apart, so everything counts as large."""
    full = {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
    return {"all": full, "small_pool": dict.fromkeys(full, 0), "large_pool": full}


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
    account = _account_of(index)
    return _describe_sums(account) if account.allocator is None else _describe_allocator(account.allocator)


def _describe_allocator(allocator: CachingAllocator) -> dict[str, Any]:
    figures = allocator.figures
    tables: dict[str, Any] = {
        name: {pool: asdict(figure) for pool, figure in table.items()} for name, table in figures.tables.items()
    }
    nothing = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    return tables | {
        "active": tables["allocation"],
        "active_bytes": tables["allocated_bytes"],
        "oversize_allocations": nothing,
        "oversize_segments": nothing,
        "num_alloc_retries": figures.retries,
        "num_ooms": figures.ooms,
        "num_sync_all_streams": 0,
        "num_device_alloc": figures.taken,
        "num_device_free": figures.returned,
        "max_split_size": -1 if allocator.settings.unsplit == NEVER else allocator.settings.unsplit,
    }


def _describe_sums(account: Account) -> dict[str, Any]:
    """Of allocations that are only added up."""
    held = _make_figure(account.held, account.peak, account.allocated_total, account.freed_total)
    blocks = _make_figure(account.active, account.peak_active, account.allocations, account.frees)
    reserved = _make_figure(account.reserved, account.peak_reserved, account.reserved, 0)
    nothing = _make_figure(0, 0, 0, 0)
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
        **dict.fromkeys(("oversize_allocations", "oversize_segments"), nothing["all"]),
        "num_alloc_retries": 0,
        "num_ooms": account.ooms,
        "num_sync_all_streams": 0,
        "num_device_alloc": account.allocations,
        "num_device_free": 0,
        "max_split_size": -1,
    }


def free_and_total(index: int) -> tuple[int, int]:
    """What `torch.cuda.mem_get_info` returns: cached bytes are not free."""
    account = SimulationState.ledger.account_of(machine.check_index(index))
    return account.free, account.capacity


def reset_totals(index: int) -> None:
    """Start what went in and out again, on a card."""
    allocator = _account_of(index).allocator
    if allocator is not None:
        allocator.figures.reset_totals()


def memory_snapshot(mempool: object = None) -> dict[str, Any]:
    """The segments of cards, without a history."""
    SimulationState.ledger.settle_freed()
    allocators = [(index, account.allocator) for index, account in enumerate(SimulationState.ledger.accounts)]
    found = [each for index, allocator in allocators if allocator is not None for each in snapshot_segments(allocator, index)]
    return {"segments": found, "device_traces": [[] for _ in allocators], "allocator_settings": {}, "external_annotations": []}


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


def snapshot_segments(allocator: CachingAllocator, device: int) -> list[dict[str, Any]]:
    """Every run of blocks with memory behind it, by address. Source of the keys: `torch/csrc/cuda/Module.cpp`."""
    firsts = [first for pool in allocator.pools for first in pool.segments.values()]
    runs = [_describe_segment(run, device) for first in firsts for run in _split_into_runs(first)]
    return sorted(runs, key=lambda segment: int(segment["address"]))


def _split_into_runs(first: SegmentBlock) -> Iterator[list[SegmentBlock]]:
    run: list[SegmentBlock] = []
    for block in iterate_from(first):
        if block.mapped:
            run.append(block)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _describe_segment(blocks: list[SegmentBlock], device: int) -> dict[str, Any]:
    in_use = sum(block.size for block in blocks if block.in_use)
    return {
        "device": device,
        "address": blocks[0].address,
        "total_size": sum(block.size for block in blocks),
        "allocated_size": in_use,
        "active_size": in_use,
        "requested_size": sum(block.requested for block in blocks),
        "stream": blocks[0].segment.stream,
        "segment_type": "small" if blocks[0].segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": blocks[0].segment.expandable,
        "frames": [],
        "blocks": [_describe_block(block) for block in blocks],
    }


def _describe_block(block: SegmentBlock) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": "active_allocated" if block.in_use else "inactive",
        "frames": [],
    }
