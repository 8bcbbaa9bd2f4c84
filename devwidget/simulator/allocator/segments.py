"""Segments, which are taken from the GPU, and the blocks that they are divided into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Segment:
    """What was taken from the GPU in one piece, or a range of addresses that grows.

    Attributes:
        address: where it begins.
        small: it belongs to the pool of small blocks.
    """

    address: int
    small: bool
    expandable: bool = False


@dataclass(slots=True, eq=False)
class SegmentBlock:
    """A part of a segment.

    Attributes:
        address: where it begins.
        size: bytes, a multiple of the unit.
        requested: bytes that the program asked for; 0 where nothing is kept in it.
        mapped: there is memory behind its addresses; only a segment that grows has parts without.
        previous: the part of the same segment before this one.
    """

    segment: Segment
    address: int
    size: int
    requested: int = 0
    in_use: bool = False
    mapped: bool = True
    previous: SegmentBlock | None = None
    next: SegmentBlock | None = None

    @property
    def is_split(self) -> bool:
        """Whether it is not the whole of its segment."""
        return self.previous is not None or self.next is not None

    @property
    def is_free(self) -> bool:
        """Whether it can be handed out, and joined with its neighbours."""
        return self.mapped and not self.in_use

    def split(self, size: int) -> SegmentBlock:
        """Make this block end after `size` bytes; returns the rest."""
        rest = SegmentBlock(self.segment, self.address + size, self.size - size, mapped=self.mapped)
        rest.previous, rest.next = self, self.next
        self.next, self.size = rest, size
        if rest.next is not None:
            rest.next.previous = rest
        return rest

    def join(self) -> None:
        """Take in the next block."""
        assert self.next is not None
        self.size += self.next.size
        self.next = self.next.next
        if self.next is not None:
            self.next.previous = self


def from_here(block: SegmentBlock | None) -> Iterator[SegmentBlock]:
    """A block and those behind it in the same segment."""
    while block is not None:
        yield block
        block = block.next
