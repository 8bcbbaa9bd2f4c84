"""What an allocator counts, for each pool and for both together: now, at most, and in and out since the last reset."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Figure:
    """One figure of one pool."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        """So much more, or less."""
        self.current += amount
        if amount < 0:
            self.freed -= amount
            return
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def reset_peak(self) -> None:
        """Let the peak start again from what is now."""
        self.peak = self.current

    def reset_totals(self) -> None:
        """Let what went in and out start again."""
        self.allocated = self.freed = 0


NAMES = (
    "allocation",
    "segment",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
POOLS = ("all", "small_pool", "large_pool")


def _figures() -> dict[str, dict[str, Figure]]:
    return {name: {pool: Figure() for pool in POOLS} for name in NAMES}


@dataclass(slots=True)
class Figures:
    """All figures of one GPU, by their names in `torch.cuda.memory_stats`."""

    tables: dict[str, dict[str, Figure]] = field(default_factory=_figures)
    retries: int = 0
    ooms: int = 0
    taken: int = 0
    returned: int = 0

    def add(self, pool: str, **amounts: int) -> None:
        """So much more of each, in a pool."""
        for name, amount in amounts.items():
            table = self.tables[name]
            table[pool].add(amount)
            table["all"].add(amount)

    def current(self, name: str) -> int:
        """One figure of both pools."""
        return self.tables[name]["all"].current

    def reset_peaks(self) -> None:
        """Let all peaks start again from what is now."""
        for figure in self.every():
            figure.reset_peak()

    def reset_totals(self) -> None:
        """Let all that went in and out start again."""
        for figure in self.every():
            figure.reset_totals()

    def every(self) -> list[Figure]:
        """All of them."""
        return [figure for table in self.tables.values() for figure in table.values()]
