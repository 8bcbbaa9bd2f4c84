"""CachingAllocator: hands out the memory of one GPU by the rules of `c10/cuda/CUDACachingAllocator.cpp`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from devwidget.extras.cards.pools import GpuMemory, Pool, Segment, SegmentBlock, iterate_from
from devwidget.extras.cards.settings import NEVER, SMALL, UNIT, AllocatorSettings
from devwidget.records.memory import in_blocks

RANGE = 1 << 44
"""Bytes of addresses, more than any program uses."""


@dataclass(slots=True)
class ExpandableSegment:
    """The segment of a pool that grows by pages, in place of new segments."""

    memory: GpuMemory
    pool: Pool
    page: int
    first: SegmentBlock = field(init=False)

    def __post_init__(self) -> None:
        address = self.memory.reserve_addresses(RANGE)
        segment = Segment(address, self.pool.name == "small_pool", expandable=True, stream=self.pool.stream)
        self.first = SegmentBlock(segment, segment.address, RANGE, mapped=False)
        self.pool.segments[self.first.address] = self.first

    def grow_by(self, size: int) -> SegmentBlock | None:
        """A block of at least `size` bytes that has left the pool, at the lowest addresses; None if the GPU has no more."""
        block = self._find_run(size)
        while not block.mapped or block.size < size:
            hole = block if not block.mapped else block.next
            assert hole is not None
            if not self._map_pages(hole, min(hole.size, size if hole is block else size - block.size)):
                return None
        self.pool.take_block(block)
        return block

    def _find_run(self, size: int) -> SegmentBlock:
        """The first block of a run without blocks in use that is long enough; the end of the range is."""
        run, length = self.first, 0
        for block in iterate_from(self.first):
            if block.in_use:
                length = 0
                continue
            run = block if not length else run
            length += block.size
            if not block.mapped and length >= size:
                break
        return run

    def _map_pages(self, hole: SegmentBlock, size: int) -> bool:
        amount = in_blocks(size, self.page)
        if not self.memory.take_bytes(self.pool.name, amount):
            return False
        if amount < hole.size:
            hole.split_off(amount)
        hole.mapped = True
        self.pool.put_block(hole)
        return True

    def unmap_pages(self, block: SegmentBlock) -> None:
        """Give back the pages that lie within a free block."""
        start = block.address - self.first.address
        begin, end = in_blocks(start, self.page), (start + block.size) // self.page * self.page
        if begin >= end:
            return
        self.pool.take_block(block)
        inside, rests = block, []
        if begin > start:
            inside, rests = block.split_off(begin - start), [block]
        if inside.size > end - begin:
            rests.append(inside.split_off(end - begin))
        inside.mapped = False
        self.memory.give_back(self.pool.name, inside.size)
        for rest in rests:
            self.pool.put_block(rest)
        if inside.next is not None and not inside.next.mapped:
            inside.join_next()
        if inside.previous is not None and not inside.previous.mapped:
            inside.previous.join_next()


class NoRoom(Exception):
    """A request does not fit, not even after all that is cached and unused was given back."""


class CachingAllocator:
    """Hands out the memory of one GPU."""

    def __init__(self, capacity: int, settings: AllocatorSettings) -> None:
        self.memory, self.settings = GpuMemory(capacity), settings
        self.figures = self.memory.figures
        self.pools: dict[tuple[str, int], Pool] = {}
        self._growing: dict[tuple[str, int], ExpandableSegment] = {}

    def allocate_block(self, requested: int, stream: int = 0) -> SegmentBlock:
        """A block for so many bytes, at least one, on a stream: what was freed on another is not for it.

        Raises:
            NoRoom: if there is none.
        """
        size = in_blocks(requested, UNIT)
        pool = self._find_pool(size <= SMALL, stream)
        block = self._find_cached(pool, size) or self._take_new(pool, size) or self._take_new_after_release(pool, size)
        if block is None:
            self.figures.ooms += 1
            raise NoRoom
        block.in_use, block.requested = True, requested
        if self._should_split(block, size):
            pool.put_block(block.split_off(size))
        self.figures.add_amounts(pool.name, allocation=1, allocated_bytes=block.size, requested_bytes=requested)
        return block

    def free_block(self, block: SegmentBlock) -> None:
        """Take a block back."""
        pool = self._find_pool(block.segment.small, block.segment.stream)
        self.figures.add_amounts(pool.name, allocation=-1, allocated_bytes=-block.size, requested_bytes=-block.requested)
        block.in_use, block.requested = False, 0
        pool.put_block(block)

    def release_cached(self) -> None:
        """Give unused segments and pages back to the GPU."""
        for pool in list(self.pools.values()):
            for block in pool.free_blocks:
                if block.segment.expandable:
                    self._growing[pool.name, pool.stream].unmap_pages(block)
                elif not block.is_split:
                    self._release_segment(block)

    def _find_pool(self, small: bool, stream: int) -> Pool:
        key = "small_pool" if small else "large_pool", stream
        if key not in self.pools:
            self.pools[key] = Pool(key[0], self.figures, stream)
        return self.pools[key]

    def _find_cached(self, pool: Pool, size: int) -> SegmentBlock | None:
        """The smallest free block that fits, unless it would be wasted on so little."""
        block, unsplit = pool.find_at_least(size), self.settings.unsplit
        if block is None:
            return None
        if size < unsplit <= block.size or (size >= unsplit and block.size >= size + self.settings.surplus):
            return None
        pool.take_block(block)
        return block

    def _take_new(self, pool: Pool, size: int) -> SegmentBlock | None:
        """A block of memory that is taken from the GPU now; None if it has no more."""
        if self.settings.expandable:
            return self._growing_segment(pool).grow_by(size)
        amount = self.settings.segment_bytes(size)
        if not self.memory.take_bytes(pool.name, amount):
            return None
        segment = Segment(self.memory.reserve_addresses(amount), pool.name == "small_pool", stream=pool.stream)
        self.figures.add_amounts(pool.name, segment=1)
        block = pool.segments[segment.address] = SegmentBlock(segment, segment.address, amount)
        return block

    def _take_new_after_release(self, pool: Pool, size: int) -> SegmentBlock | None:
        if self._release_unsplit(pool, size) and (block := self._take_new(pool, size)):
            return block
        self.release_cached()
        self.figures.retries += 1
        return self._take_new(pool, size)

    def _growing_segment(self, pool: Pool) -> ExpandableSegment:
        key = pool.name, pool.stream
        if key not in self._growing:
            page = self.settings.segment_bytes(UNIT if pool.name == "small_pool" else SMALL + UNIT)
            self._growing[key] = ExpandableSegment(self.memory, pool, page)
        return self._growing[key]

    def _should_split(self, block: SegmentBlock, size: int) -> bool:
        rest = block.size - size
        if block.segment.small or block.segment.expandable:
            return rest >= UNIT
        return size < self.settings.unsplit and rest > SMALL

    def _release_segment(self, block: SegmentBlock) -> None:
        pool = self._find_pool(block.segment.small, block.segment.stream)
        pool.take_block(block)
        del pool.segments[block.address]
        self.figures.add_amounts(pool.name, segment=-1)
        self.memory.give_back(pool.name, block.size)

    def _release_unsplit(self, pool: Pool, size: int) -> bool:
        """Where blocks above a size are not split: give one back that is large enough, or several, the largest first."""
        if self.settings.unsplit == NEVER:
            return False
        wanted = max(size, self.settings.unsplit)
        one, released = pool.find_at_least(wanted), 0
        blocks: Iterable[SegmentBlock] = reversed(pool.free_blocks)
        if one:
            blocks = [one]
        for block in blocks:
            if released >= wanted or block.size < self.settings.unsplit:
                break
            self._release_segment(block)
            released += block.size
        return released >= wanted
