"""Fitted: plans of several sizes of a batch and of its texts, and what lies between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from devwidget.records.device import DeviceId

BATCH_KNOTS, LENGTH_KNOTS = 2, 3
"""Knots that an estimate is made of: what a step takes grows along lines with the batch, and with attention as a square with
the length of texts."""


@dataclass(frozen=True, slots=True)
class FittedGpu:
    """One GPU.

    Attributes:
        device: which.
        capacity: what it has, in bytes.
        taken: the most that was taken of it in each plan, in bytes; batch after batch, in each the lengths.
    """

    device: DeviceId
    capacity: int
    taken: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Plans on a grid.

    Attributes:
        model: class of the model.
        card: the kind of card, if one is named.
        batches: samples of the plans that were run.
        lengths: tokens of each text in them; one alone where no text is in the batch, or none can be longer or shorter.
        asked: batch and length of the step itself.
        gpus: what was taken.
        checked: plans that were run between them.
        off: the most that an estimate was off there, as a share.
    """

    model: str
    card: str
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    asked: tuple[int, int]
    gpus: tuple[FittedGpu, ...]
    checked: int = 0
    off: float = 0.0

    def at(self, batch: int, length: int) -> tuple[int, ...]:
        """Bytes of each GPU, estimated between the plans."""
        rows, columns = weights(self.batches, batch, BATCH_KNOTS), weights(self.lengths, length, LENGTH_KNOTS)
        wide = len(self.lengths)
        return tuple(
            round(sum(gpu.taken[row * wide + column] * a * b for row, a in rows for column, b in columns)) for gpu in self.gpus
        )


def weights(knots: Sequence[int], at: float, most: int) -> list[tuple[int, float]]:
    """How much each of the nearest knots counts, by Lagrange's polynomial through them."""
    above = min(bisect_right(knots, at), len(knots) - 1)
    first = max(min(above - 1, len(knots) - most), 0)
    near = range(first, min(first + most, len(knots)))
    return [(n, prod((at - knots[m]) / (knots[n] - knots[m]) for m in near if m != n)) for n in near]
