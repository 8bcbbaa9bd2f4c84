"""GpuMemory: what is taken from one GPU, and at which addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

from devwidget.simulator.allocator.figures import Figures
from devwidget.simulator.allocator.sizes import SEGMENT_UNIT

FIRST_ADDRESS = 0x7F0000000000
"""Where drivers of 64-bit systems begin, roughly; no program can tell."""


@dataclass(slots=True)
class GpuMemory:
    """The memory of one GPU as the allocator sees it.

    Attributes:
        capacity: bytes that can be taken.
        figures: what is counted.
    """

    capacity: int
    figures: Figures = field(default_factory=Figures)
    _next_address: int = FIRST_ADDRESS

    def take(self, pool: str, amount: int) -> bool:
        """Take bytes for a pool, if the GPU has them."""
        if self.figures.current("reserved_bytes") + amount > self.capacity:
            return False
        self.figures.taken += 1
        self.figures.add(pool, reserved_bytes=amount)
        return True

    def give_back(self, pool: str, amount: int) -> None:
        """Return bytes to the GPU."""
        self.figures.returned += 1
        self.figures.add(pool, reserved_bytes=-amount)

    def new_address(self, amount: int) -> int:
        """Where a segment of so many bytes begins; no address is used twice."""
        address = self._next_address
        self._next_address += -(-amount // SEGMENT_UNIT) * SEGMENT_UNIT
        return address
