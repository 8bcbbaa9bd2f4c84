"""What is taken from a GPU and divided: segments, their blocks, the pools of free ones, and what is counted of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from devwidget.extras.cards.settings import SEGMENT_UNIT
from devwidget.records.memory import in_blocks


@dataclass(slots=True, eq=False)
class Segment:
    """What was taken from the GPU in one piece, or a range of addresses that grows, for small or large blocks of a stream."""

    address: int
    small: bool
    expandable: bool = False
    stream: int = 0


@dataclass(slots=True, eq=False)
class SegmentBlock:
    """A part of a segment.

    Attributes:
        requested: bytes that the program asked for; 0 where nothing is kept in it.
        mapped: there is memory behind its addresses; only a segment that grows has parts without.
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

    def split_off(self, size: int) -> SegmentBlock:
        """Make this block end after `size` bytes; returns the rest."""
        place = self.address + size
        rest = SegmentBlock(self.segment, place, self.size - size, mapped=self.mapped, previous=self, next=self.next)
        self.next, self.size = rest, size
        if rest.next is not None:
            rest.next.previous = rest
        return rest

    def join_next(self) -> None:
        """Take in the next block."""
        assert self.next is not None
        self.size += self.next.size
        self.next = self.next.next
        if self.next is not None:
            self.next.previous = self


def iterate_from(block: SegmentBlock | None) -> Iterator[SegmentBlock]:
    """A block and those behind it in the same segment."""
    while block is not None:
        yield block
        block = block.next


@dataclass(slots=True)
class Figure:
    """One figure of one pool."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add_amount(self, amount: int) -> None:
        """So much more, or less."""
        self.current += amount
        if amount < 0:
            self.freed -= amount
            return
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current


FIGURE_NAMES = (
    *("allocation", "segment", "inactive_split"),
    *("allocated_bytes", "reserved_bytes", "inactive_split_bytes", "requested_bytes"),
)
POOLS = ("all", "small_pool", "large_pool")


@dataclass(slots=True)
class Figures:
    """All figures of one GPU, by their names in `torch.cuda.memory_stats`."""

    tables: dict[str, dict[str, Figure]] = field(
        default_factory=lambda: {name: {pool: Figure() for pool in POOLS} for name in FIGURE_NAMES}
    )
    retries: int = 0
    ooms: int = 0
    taken: int = 0
    returned: int = 0

    def add_amounts(self, pool: str, **amounts: int) -> None:
        """So much more of each, in a pool."""
        for name, amount in amounts.items():
            table = self.tables[name]
            table[pool].add_amount(amount)
            table["all"].add_amount(amount)

    def current_of(self, name: str) -> int:
        """One figure of both pools."""
        return self.tables[name]["all"].current

    def reset_peaks(self) -> None:
        """Let all peaks start again from what is now."""
        for figure in self.list_figures():
            figure.peak = figure.current

    def reset_totals(self) -> None:
        """Let all that went in and out start again."""
        for figure in self.list_figures():
            figure.allocated = figure.freed = 0

    def list_figures(self) -> list[Figure]:
        """All of them."""
        return [figure for table in self.tables.values() for figure in table.values()]


FIRST_ADDRESS = 0x7F0000000000
"""Where drivers of 64-bit systems begin, roughly; no program can tell."""


@dataclass(slots=True)
class GpuMemory:
    """The memory of one GPU as the allocator sees it. At most `capacity` bytes can be taken."""

    capacity: int
    figures: Figures = field(default_factory=Figures)
    _next_address: int = FIRST_ADDRESS

    def take_bytes(self, pool: str, amount: int) -> bool:
        """Take bytes for a pool, if the GPU has them."""
        if self.figures.current_of("reserved_bytes") + amount > self.capacity:
            return False
        self.figures.taken += 1
        self.figures.add_amounts(pool, reserved_bytes=amount)
        return True

    def give_back(self, pool: str, amount: int) -> None:
        """Return bytes to the GPU."""
        self.figures.returned += 1
        self.figures.add_amounts(pool, reserved_bytes=-amount)

    def reserve_addresses(self, amount: int) -> int:
        """Where a segment of so many bytes begins; no address is used twice."""
        address = self._next_address
        self._next_address += in_blocks(amount, SEGMENT_UNIT)
        return address


@dataclass(slots=True, eq=False)
class Pool:
    """Free blocks, ordered by size and then by address.

    Attributes:
        name: as in `torch.cuda.memory_stats`.
        stream: on which its blocks are handed out.
        segments: the first block of each segment that belongs to the pool, by its address.
    """

    name: str
    figures: Figures
    stream: int = 0
    segments: dict[int, SegmentBlock] = field(default_factory=dict)
    _free: list[tuple[int, int, SegmentBlock]] = field(default_factory=list)

    def find_at_least(self, size: int) -> SegmentBlock | None:
        """The smallest free block that is large enough."""
        at = bisect_left(self._free, (size,))
        return self._free[at][2] if at < len(self._free) else None

    @property
    def free_blocks(self) -> list[SegmentBlock]:
        """All free blocks, the largest last."""
        return [block for _, _, block in self._free]

    def put_block(self, block: SegmentBlock) -> SegmentBlock:
        """A block is free from now on, joined with its free neighbours; returns the whole."""
        if block.next is not None and block.next.is_free:
            self.take_block(block.next)
            block.join_next()
        before = block.previous
        if before is not None and before.is_free:
            self.take_block(before)
            before.join_next()
            block = before
        insort(self._free, (block.size, block.address, block))
        self._count_split(block, 1)
        return block

    def take_block(self, block: SegmentBlock) -> None:
        """A free block leaves."""
        at = bisect_left(self._free, (block.size, block.address))
        assert self._free[at][2] is block, "the block is not free"
        del self._free[at]
        self._count_split(block, -1)

    def _count_split(self, block: SegmentBlock, sign: int) -> None:
        if block.is_split:
            self.figures.add_amounts(self.name, inactive_split=sign, inactive_split_bytes=sign * block.size)
