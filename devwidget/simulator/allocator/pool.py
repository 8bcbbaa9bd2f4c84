"""Pool: the free blocks of all small or of all large segments."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from devwidget.simulator.allocator.figures import Figures
from devwidget.simulator.allocator.segments import SegmentBlock


@dataclass(slots=True, eq=False)
class Pool:
    """Free blocks, ordered by size and then by address.

    Attributes:
        name: as it is called in `torch.cuda.memory_stats`.
        segments: the first block of each segment that belongs to the pool, by its address.
    """

    name: str
    figures: Figures
    segments: dict[int, SegmentBlock] = field(default_factory=dict)
    _free: list[tuple[int, int, SegmentBlock]] = field(default_factory=list)

    def at_least(self, size: int) -> SegmentBlock | None:
        """The smallest free block that is large enough."""
        at = bisect_left(self._free, (size,))
        return self._free[at][2] if at < len(self._free) else None

    def free(self) -> list[SegmentBlock]:
        """All free blocks, the largest last."""
        return [block for _, _, block in self._free]

    def put(self, block: SegmentBlock) -> SegmentBlock:
        """A block is free from now on, joined with its free neighbours; returns the whole."""
        if block.next is not None and block.next.is_free:
            self.take(block.next)
            block.join()
        before = block.previous
        if before is not None and before.is_free:
            self.take(before)
            before.join()
            block = before
        insort(self._free, (block.size, block.address, block))
        self._count(block, 1)
        return block

    def take(self, block: SegmentBlock) -> None:
        """A free block leaves."""
        at = bisect_left(self._free, (block.size, block.address))
        assert self._free[at][2] is block, "the block is not free"
        del self._free[at]
        self._count(block, -1)

    def _count(self, block: SegmentBlock, sign: int) -> None:
        if block.is_split:
            self.figures.add(self.name, inactive_split=sign, inactive_split_bytes=sign * block.size)
