"""Fits plans of several sizes, so that sizes between them can be told at once; some are run to see how far that is off."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from devwidget.records.answers.fitted import Fitted, FittedGpu
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import Plan

MOST_OFF = 0.01
"""Share by which an estimate may be off; where it is more, sizes in between are run too, once."""
LARGEST = 4
"""Times the batch of the step that was asked for."""


@dataclass
class Grid:
    """Plans by batch and length.

    Attributes:
        plan: plans one size.
        plans: those that were planned.
    """

    plan: Callable[[int, int], Plan]
    plans: dict[tuple[int, int], Plan] = field(default_factory=dict)

    def at(self, batch: int, length: int) -> Plan:
        """The plan of one size."""
        if (batch, length) not in self.plans:
            self.plans[batch, length] = self.plan(batch, length)
        return self.plans[batch, length]

    def can_be(self, batch: int, length: int) -> bool:
        """Whether a step of that size runs; a model may be for texts of one length."""
        try:
            self.at(batch, length)
        except DevwidgetError:
            return False
        return True

    def fitted(self, batches: tuple[int, ...], lengths: tuple[int, ...], asked: tuple[int, int]) -> Fitted:
        """A fit through the plans of these sizes, and how far it is off in between."""
        plans = [self.at(batch, length) for batch, length in itertools.product(batches, lengths)]
        gpus = tuple(
            FittedGpu(device.device, device.capacity, tuple(plan.devices[index].on_card for plan in plans))
            for index, device in enumerate(plans[0].devices)
        )
        found = Fitted(plans[0].model, plans[0].card, batches, lengths, asked, gpus)
        between = self._between(found)
        return replace(found, checked=len(between), off=max((self._off(found, *size) for size in between), default=0.0))

    def _between(self, fitted: Fitted) -> list[tuple[int, int]]:
        """A size within each interval of lengths, and of batches."""
        batches, lengths = _middles(fitted.batches), _middles(fitted.lengths)
        count = max(len(batches), len(lengths))
        pairs = zip(itertools.islice(itertools.cycle(batches or fitted.batches), count),
                    itertools.islice(itertools.cycle(lengths or fitted.lengths), count), strict=True)  # fmt: skip
        return list(dict.fromkeys(pairs))

    def _off(self, fitted: Fitted, batch: int, length: int) -> float:
        taken = [device.on_card for device in self.at(batch, length).devices]
        return max(abs(said - ran) / max(ran, 1) for said, ran in zip(fitted.at(batch, length), taken, strict=True))


def fit(grid: Grid, batch: int, length: int | None) -> Fitted:
    """Plans around a step, as many as it takes to be close between them.

    Args:
        length: of the texts of the batch; None where it has none.
    """
    batches = tuple(sorted({1, batch, 2 * batch, LARGEST * batch}))
    around = {length // 2, length, 2 * length} - {0} if length else {0}
    lengths = tuple(sorted(each for each in around if each == (length or 0) or grid.can_be(batch, each)))
    found = grid.fitted(batches, lengths, (batch, length or 0))
    if found.off <= MOST_OFF:
        return found
    return grid.fitted(_finer(batches), _finer(lengths), found.asked)


def _finer(knots: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*knots, *_middles(knots)}))


def _middles(knots: tuple[int, ...]) -> list[int]:
    return [middle for low, high in itertools.pairwise(knots) if low < (middle := (low + high) // 2) < high]
