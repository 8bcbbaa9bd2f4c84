"""The same workloads, predicted: each function runs one without values on a virtual card."""

from __future__ import annotations

import functools
import json
import math
import warnings
from pathlib import Path

import torch

import devwidget
from devwidget.extras.cards.caching_allocator import CachingAllocator
from devwidget.extras.cards.pools import SegmentBlock
from devwidget.extras.cards.settings import AllocatorSettings

CARD = "A100-80GB"
"""Its workspaces are those of the cards of the measurements."""


@functools.cache
def attention(width: int, length: int, card: str = CARD) -> int:
    """Bytes allocated between forward and backward, after a first step."""
    with devwidget.simulate(1, card=card, compute=False):
        queries, keys, values = (torch.randn(8, length, width, requires_grad=True).cuda() for _ in range(3))
        for _ in range(2):
            scores = queries @ keys.transpose(-2, -1) / math.sqrt(width)
            out = torch.softmax(scores, -1) @ values
            del scores
            allocated = torch.cuda.memory_allocated()
            out.sum().backward()
        return allocated


@functools.cache
def predicted(workload: str) -> dict[str, float]:
    """Bytes of a workload: `allocated`, `reserved`, `on the card`."""
    from tests.extras.plan.evidence import workloads

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # packages that build a workload warn of what they themselves use
        return workloads.WORKLOADS[workload]()


def recorded_segments() -> dict[str, list[tuple[int, int, int]]]:
    """Of each snapshot: bytes of a request, bytes of the segment that a GPU took for it, and how often."""
    text = (Path(__file__).parent / "recorded_segments.json").read_text(encoding="utf-8")
    return {name: [tuple(row) for row in rows] for name, rows in json.loads(text).items()}


def segment_for(request: int) -> int:
    """Bytes of the segment that our allocator takes for a request, where nothing is cached."""
    allocator = CachingAllocator(1 << 50, AllocatorSettings())
    allocator.allocate_block(request)
    return allocator.figures.current_of("reserved_bytes")


def replayed() -> tuple[list[int], list[int]]:
    """Sizes of the segments that a real GPU took for a recorded run, and of those that our allocator takes for its requests."""
    recorded = json.loads((Path(__file__).parent / "recorded_requests.json").read_text())
    allocator, blocks, ours = CachingAllocator(1 << 50, AllocatorSettings()), list[SegmentBlock](), list[int]()
    for request in recorded["requests"]:
        if request < 0:
            allocator.free_block(blocks[-1 - request])
            continue
        before = allocator.figures.current_of("reserved_bytes")
        blocks.append(allocator.allocate_block(request))
        ours += [taken] if (taken := allocator.figures.current_of("reserved_bytes") - before) else []
    return recorded["segments"], ours
