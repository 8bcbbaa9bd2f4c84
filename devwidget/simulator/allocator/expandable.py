"""ExpandableSegment: one range of addresses, with memory behind as many of its pages as are needed."""

from __future__ import annotations

from dataclasses import dataclass, field

from devwidget.records.memory import in_blocks
from devwidget.simulator.allocator.gpu_memory import GpuMemory
from devwidget.simulator.allocator.pool import Pool
from devwidget.simulator.allocator.segments import Segment, SegmentBlock, from_here

RANGE = 1 << 44
"""Bytes of addresses, of which no program runs out."""


@dataclass(slots=True)
class ExpandableSegment:
    """The segment of a pool that grows, in place of new segments.

    Attributes:
        page: memory is put behind addresses in multiples of so many bytes.
    """

    memory: GpuMemory
    pool: Pool
    page: int
    first: SegmentBlock = field(init=False)

    def __post_init__(self) -> None:
        segment = Segment(self.memory.new_address(RANGE), self.pool.name == "small_pool", expandable=True)
        self.first = SegmentBlock(segment, segment.address, RANGE, mapped=False)
        self.pool.segments[self.first.address] = self.first

    def grow(self, size: int) -> SegmentBlock | None:
        """A block of at least `size` bytes that has left the pool, at the lowest addresses; None if the GPU has no more."""
        block = self._where_it_fits(size)
        while not block.mapped or block.size < size:
            hole = block if not block.mapped else block.next
            assert hole is not None
            if not self._map(hole, min(hole.size, size if hole is block else size - block.size)):
                return None
        self.pool.take(block)
        return block

    def _where_it_fits(self, size: int) -> SegmentBlock:
        """The first block of a run without blocks in use that is long enough; the end of the range is."""
        run, length = self.first, 0
        for block in from_here(self.first):
            if block.in_use:
                length = 0
                continue
            run = block if not length else run
            length += block.size
            if not block.mapped and length >= size:
                break
        return run

    def _map(self, hole: SegmentBlock, size: int) -> bool:
        amount = in_blocks(size, self.page)
        if not self.memory.take(self.pool.name, amount):
            return False
        if amount < hole.size:
            hole.split(amount)
        hole.mapped = True
        self.pool.put(hole)
        return True

    def unmap(self, block: SegmentBlock) -> None:
        """Give back the pages that lie within a free block."""
        start = block.address - self.first.address
        begin, end = in_blocks(start, self.page), (start + block.size) // self.page * self.page
        if begin >= end:
            return
        self.pool.take(block)
        inside = block if begin == start else block.split(begin - start)
        after = inside.split(end - begin) if inside.size > end - begin else None
        inside.mapped = False
        self.memory.give_back(self.pool.name, inside.size)
        for rest in (block if inside is not block else None, after):
            if rest is not None:
                self.pool.put(rest)
        if inside.next is not None and not inside.next.mapped:
            inside.join()
        if inside.previous is not None and not inside.previous.mapped:
            inside.previous.join()
