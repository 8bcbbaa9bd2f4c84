"""An allocator's segments as `torch.cuda.memory_snapshot` shows them, which `torch.cuda._memory_viz` reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from devwidget.simulator.allocator.caching_allocator import CachingAllocator
from devwidget.simulator.allocator.segments import SegmentBlock, from_here


def segments(allocator: CachingAllocator, device: int) -> list[dict[str, Any]]:
    """Every run of blocks with memory behind it, by address. Source of the keys: `torch/csrc/cuda/Module.cpp`."""
    firsts = [first for pool in (allocator.small, allocator.large) for first in pool.segments.values()]
    runs = [_segment(run, device) for first in firsts for run in _runs(first)]
    return sorted(runs, key=lambda segment: int(segment["address"]))


def _runs(first: SegmentBlock) -> Iterator[list[SegmentBlock]]:
    run: list[SegmentBlock] = []
    for block in from_here(first):
        if block.mapped:
            run.append(block)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _segment(blocks: list[SegmentBlock], device: int) -> dict[str, Any]:
    in_use = sum(block.size for block in blocks if block.in_use)
    return {
        "device": device,
        "address": blocks[0].address,
        "total_size": sum(block.size for block in blocks),
        "allocated_size": in_use,
        "active_size": in_use,
        "requested_size": sum(block.requested for block in blocks),
        "stream": 0,
        "segment_type": "small" if blocks[0].segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": blocks[0].segment.expandable,
        "frames": [],
        "blocks": [_block(block) for block in blocks],
    }


def _block(block: SegmentBlock) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": "active_allocated" if block.in_use else "inactive",
        "frames": [],
    }
