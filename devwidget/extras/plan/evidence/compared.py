"""How far plans were off on real cards: published figures next to their plans, and the bands that follow from them."""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import dataclass
from importlib import resources
from typing import Literal

ROWS = "rows.csv"
"""Next to this file; written by `python -m tests.extras.plan.evidence`."""
_FINEST = 1000
"""A band is rounded up to a thousandth."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure that others or we have measured, and its plan, in bytes; a row of benchmarks/results/plans.md.

    Attributes:
        source: its letter there.
        workload: what ran.
        what: `allocated`, `reserved`, `on the card`, or `allocated by a rank`.
        least: the lowest that was measured.
        most: the highest.
        planned: the same, planned.
        counts: whether what was planned is what ran; else the row says nothing of plans.
    """

    source: str
    workload: str
    what: str
    least: int
    most: int
    planned: int
    counts: bool

    @property
    def off(self) -> float:
        """How far the plan lies outside of what was measured, as a share; below zero it is too low, the unsafe side."""
        return (self.planned - max(self.least, min(self.most, self.planned))) / self.most


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """How far something was from its plan, as shares of the plan.

    Attributes:
        less: how much less it took at most.
        more: how much more.
    """

    less: float
    more: float

    def around(self, size: float) -> tuple[int, int]:
        """The least and the most that a planned size stands for."""
        return int(size * (1 - self.less)), int(size * (1 + self.more))


@functools.cache
def list_compared() -> tuple[Compared, ...]:
    """All rows."""
    lines = resources.files(__package__).joinpath(ROWS).read_text(encoding="utf-8").splitlines()
    return tuple(_read_row(row) for row in csv.DictReader(lines))


def _read_row(row: dict[str, str]) -> Compared:
    sizes = int(row["least"]), int(row["most"]), int(row["planned"])
    return Compared(row["source"], row["workload"], row["what"], *sizes, row["counts"] == "True")


@functools.cache
def find_band(*whats: str) -> ErrorBand:
    """The band of figures of these kinds: the worst to either side, rounded up."""
    counted = [row for row in list_compared() if row.counts]
    rows = [row for row in counted if row.what in whats]
    less = max((1 - row.most / row.planned for row in rows), default=0.0)
    more = max((row.least / row.planned - 1 for row in rows), default=0.0)
    return ErrorBand(_round_up(less), _round_up(more))


CONTEXT_BAND = ErrorBand(0.3, 0.3)
"""How far a context may be off: those that people have published for one kind of card differ by so much, with driver and
libraries."""


def find_card_band(reserved: int, context: int) -> tuple[int, int]:
    """Return the least and the most that is taken of a card, for so many planned bytes reserved in addition to a context."""
    (least, most), (less, more) = find_band("reserved", "on the card").around(reserved), CONTEXT_BAND.around(context)
    return least + less, most + more


Fit = Literal["fits", "fits by less", "does not fit"]
"""By more than plans were off on real cards; by less; or not."""


def name_fit(fits: bool, is_close: bool) -> Fit:
    """Name the answer; `is_close` is one that fits by less than plans were off."""
    if not fits:
        return "does not fit"
    if is_close:
        return "fits by less"
    return "fits"


def judge_room(taken: int, capacity: int, context: int = 0, is_card: bool = False) -> Fit:
    """Say whether so many bytes fit: reserved in addition to a context on a named card, else allocated."""
    if is_card:
        band = find_card_band(taken, context)
    else:
        band = find_band("allocated").around(taken)
    return name_fit(taken <= capacity, band[1] > capacity + context)


def _round_up(share: float) -> float:
    return max(math.ceil(share * _FINEST) / _FINEST, 0.0)
