"""CachingAllocator: hands out the memory of one GPU by the rules of `c10/cuda/CUDACachingAllocator.cpp`, on one stream."""

from __future__ import annotations

from devwidget.simulator.allocator.expandable import ExpandableSegment
from devwidget.simulator.allocator.gpu_memory import GpuMemory
from devwidget.simulator.allocator.pool import Pool
from devwidget.simulator.allocator.segments import Segment, SegmentBlock
from devwidget.simulator.allocator.settings import NEVER, Settings
from devwidget.simulator.allocator.sizes import SMALL, UNIT


class NoRoom(Exception):
    """A request does not fit, not even after all that is cached and unused was given back."""


class CachingAllocator:
    """The memory of one GPU, as it is handed out.

    Attributes:
        memory: what is taken from the GPU.
        settings: how it is kept.
    """

    def __init__(self, capacity: int, settings: Settings) -> None:
        self.memory, self.settings = GpuMemory(capacity), settings
        self.figures = self.memory.figures
        self.small, self.large = Pool("small_pool", self.figures), Pool("large_pool", self.figures)
        self._growing: dict[str, ExpandableSegment] = {}

    def allocate(self, requested: int) -> SegmentBlock:
        """A block for so many bytes, at least one.

        Raises:
            NoRoom: if there is none.
        """
        size = self.settings.rounded(requested)
        pool = self.small if size <= SMALL else self.large
        block = self._cached(pool, size) or self._new(pool, size) or self._new_after_release(pool, size)
        if block is None:
            self.figures.ooms += 1
            raise NoRoom
        block.in_use, block.requested = True, requested
        if self._is_to_be_split(block, size):
            pool.put(block.split(size))
        self.figures.add(pool.name, allocation=1, allocated_bytes=block.size, requested_bytes=requested)
        return block

    def free(self, block: SegmentBlock) -> None:
        """Take a block back."""
        pool = self._pool_of(block)
        self.figures.add(pool.name, allocation=-1, allocated_bytes=-block.size, requested_bytes=-block.requested)
        block.in_use, block.requested = False, 0
        pool.put(block)

    def release_cached(self) -> None:
        """Give back to the GPU the segments and the pages of which nothing is in use."""
        for pool in (self.small, self.large):
            for block in pool.free():
                if block.segment.expandable:
                    self._growing[pool.name].unmap(block)
                elif not block.is_split:
                    self._release(block)

    def _pool_of(self, block: SegmentBlock) -> Pool:
        return self.small if block.segment.small else self.large

    def _cached(self, pool: Pool, size: int) -> SegmentBlock | None:
        """The smallest free block that fits, unless it would be wasted on so little."""
        block, unsplit = pool.at_least(size), self.settings.unsplit
        if block is None:
            return None
        if size < unsplit <= block.size or (size >= unsplit and block.size >= size + self.settings.surplus):
            return None
        pool.take(block)
        return block

    def _new(self, pool: Pool, size: int) -> SegmentBlock | None:
        """A block of memory that is taken from the GPU now; None if it has no more."""
        if self.settings.expandable:
            return self._growing_segment(pool).grow(size)
        amount = self.settings.segment_bytes(size)
        if not self.memory.take(pool.name, amount):
            return None
        segment = Segment(self.memory.new_address(amount), pool is self.small)
        self.figures.add(pool.name, segment=1)
        block = pool.segments[segment.address] = SegmentBlock(segment, segment.address, amount)
        return block

    def _new_after_release(self, pool: Pool, size: int) -> SegmentBlock | None:
        if self._release_unsplit(pool, size) and (block := self._new(pool, size)):
            return block
        self.release_cached()
        self.figures.retries += 1
        return self._new(pool, size)

    def _growing_segment(self, pool: Pool) -> ExpandableSegment:
        if pool.name not in self._growing:
            page = self.settings.segment_bytes(UNIT if pool is self.small else SMALL + UNIT)
            self._growing[pool.name] = ExpandableSegment(self.memory, pool, page)
        return self._growing[pool.name]

    def _is_to_be_split(self, block: SegmentBlock, size: int) -> bool:
        rest = block.size - size
        if block.segment.small or block.segment.expandable:
            return rest >= UNIT
        return size < self.settings.unsplit and rest > SMALL

    def _release(self, block: SegmentBlock) -> None:
        """Give a segment back, which is one free block."""
        pool = self._pool_of(block)
        pool.take(block)
        del pool.segments[block.address]
        self.figures.add(pool.name, segment=-1)
        self.memory.give_back(pool.name, block.size)

    def _release_unsplit(self, pool: Pool, size: int) -> bool:
        """Where blocks above a size are not split: give one back that is large enough, or several, the largest first."""
        if self.settings.unsplit == NEVER:
            return False
        wanted = max(size, self.settings.unsplit)
        one, released = pool.at_least(wanted), 0
        for block in [one] if one else reversed(pool.free()):
            if released >= wanted or block.size < self.settings.unsplit:
                break
            self._release(block)
            released += block.size
        return released >= wanted
