"""The account of a virtual GPU that is a named card: its blocks lie in segments, as CUDA's caching allocator keeps them."""

from __future__ import annotations

import itertools
import os
from dataclasses import asdict, dataclass
from typing import Any

from devwidget.capture.memory.roles import MemoryBlock
from devwidget.extras.cards.caching_allocator import CachingAllocator, NoRoom
from devwidget.extras.cards.pools import SegmentBlock, iterate_from
from devwidget.extras.cards.settings import NEVER, parse_settings
from devwidget.gpus.card_models import CardModel
from devwidget.gpus.state import Account
from devwidget.gpus.virtual_machine import UNLIMITED


class PlacedBlock(MemoryBlock):
    """An allocation with its place in a segment."""

    __slots__ = ("place",)

    def __init__(self, index: int, place: SegmentBlock) -> None:
        super().__init__(index, place.size)
        self.place = place

    @property
    def address(self) -> int:
        """Return its place in the memory of the GPU."""
        return self.place.address


def open_account(card: CardModel) -> Account:
    """Open the account of a card, kept as `PYTORCH_ALLOC_CONF` says; refuse in torch's words settings that torch refuses."""
    settings = parse_settings(os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or "")
    allocator = CachingAllocator(card.memory_bytes - card.context_bytes, settings)
    return CardAccount(card.memory_bytes, card.context_bytes, workspace=card.workspace_bytes, allocator=allocator)


@dataclass(slots=True, kw_only=True)
class CardAccount(Account):
    """What one card holds."""

    allocator: CachingAllocator

    @property
    def peak_in_segments(self) -> int:
        """The most that was reserved in segments."""
        return self.peak_reserved

    def limit_to(self, fraction: float) -> None:
        """Let the program use a part of the capacity alone."""
        Account.limit_to(self, fraction)
        self.allocator.memory.capacity = self.limit - self.context

    def place_block(self, index: int, requested: int, stream: int = 0) -> MemoryBlock | None:
        """A block for so many bytes, on a stream; None if they do not fit."""
        if not requested:
            return Account.place_block(self, index, requested, stream)
        try:
            return PlacedBlock(index, self.allocator.allocate_block(requested, stream))
        except NoRoom:
            return None
        finally:
            self._update_reserved()

    def place_beyond(self, index: int, requested: int, stream: int = 0) -> MemoryBlock:
        """A block that does not fit."""
        memory = self.allocator.memory
        limit, memory.capacity = memory.capacity, UNLIMITED
        try:
            return PlacedBlock(index, self.allocator.allocate_block(requested, stream))
        finally:
            memory.capacity = limit
            self._update_reserved()

    def release_block(self, block: MemoryBlock) -> None:
        """Let a block go that had a place in a segment."""
        if isinstance(block, PlacedBlock):
            self.allocator.free_block(block.place)

    def is_for(self, block: MemoryBlock, requested: int) -> bool:
        """Whether a block was taken for so many bytes."""
        if isinstance(block, PlacedBlock):
            return block.place.requested == requested
        return Account.is_for(self, block, requested)

    def release_cache(self) -> None:
        """Give back what is reserved but unused."""
        self.allocator.release_cached()
        self._update_reserved()

    def _update_reserved(self) -> None:
        self.reserved = self.allocator.figures.current_of("reserved_bytes")
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def reset_peaks(self) -> None:
        """Let the peaks start again from what is held now."""
        Account.reset_peaks(self)
        self.allocator.figures.reset_peaks()

    def reset_totals(self) -> None:
        """Start what went in and out again."""
        self.allocator.figures.reset_totals()

    def list_segments(self, index: int) -> list[dict[str, Any]]:
        """List every run of blocks with memory behind it, by address, of the card, which is GPU `index`."""
        found = []
        for pool in self.allocator.pools.values():
            for first in pool.segments.values():
                for is_mapped, run in itertools.groupby(iterate_from(first), lambda block: block.mapped):
                    if is_mapped:
                        found.append(_describe_segment(list(run), index))
        return sorted(found, key=lambda segment: int(segment["address"]))

    def describe_statistics(self) -> dict[str, Any]:
        """Describe what is held, as `torch.cuda.memory_stats_as_nested_dict` does."""
        figures = self.allocator.figures
        tables: dict[str, Any] = {}
        for name, table in figures.tables.items():
            tables[name] = {pool: asdict(figure) for pool, figure in table.items()}
        unsplit = self.allocator.settings.unsplit
        tables |= {
            "active": tables["allocation"],
            "active_bytes": tables["allocated_bytes"],
            "num_alloc_retries": figures.retries,
            "num_ooms": figures.ooms,
            "num_device_alloc": figures.taken,
            "num_device_free": figures.returned,
            "max_split_size": -1 if unsplit == NEVER else unsplit,
        }
        return Account.describe_statistics(self) | tables


def _describe_segment(blocks: list[SegmentBlock], device: int) -> dict[str, Any]:
    """Source of the keys: `torch/csrc/cuda/Module.cpp`."""
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
