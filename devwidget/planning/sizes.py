"""Plans of several sizes: the largest that fits, and a fit through them that tells of the sizes in between."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from devwidget.records.answers import Fitted, FittedGpu
from devwidget.records.errors import DevwidgetError
from devwidget.records.plan import DevicePlan, Plan

# Enough for bisection where the need does not grow along a line.
MOST_PLANS = 24
# Times the largest size that fits: small ones grow along another line, where the optimizer's step is the peak.
MOST_AT_ONCE = 16


@dataclass
class LargestSearch:
    """A search along sizes.

    Attributes:
        plan: plans one size.
        plans: those that were planned; at least one to begin with.
    """

    plan: Callable[[int], Plan]
    plans: dict[int, Plan]

    def largest_fitting(self) -> int:
        """Return the largest size that is known to fit; 0 if none is."""
        return max((size for size, plan in self.plans.items() if plan.fits), default=0)

    def plan_until_found(self) -> None:
        """Plan until the answer fits and the next larger size does not."""
        (size,) = self.plans
        second = 2 * size if self.plans[size].fits else max(size // 2, 1)
        if second != size:
            self.plans[second] = self.plan(second)
        while len(self.plans) < MOST_PLANS and (following := self._next_size()) is not None:
            self.plans[following] = self.plan(following)

    def _next_size(self) -> int | None:
        fitting = self.largest_fitting()
        failing = min((size for size, plan in self.plans.items() if not plan.fits), default=None)
        if failing is None:
            before = max((size for size in self.plans if size < fitting), default=0)
            return min(max(self._meet_capacity(before, fitting), fitting + 1), MOST_AT_ONCE * fitting)
        if failing == fitting + 1:
            return None
        guess = self._meet_capacity(fitting, failing) if len(self.plans) % 3 else (fitting + failing) // 2
        return min(max(guess, fitting + 1), failing - 1)

    def _meet_capacity(self, low: int, high: int) -> int:
        """Return where the line through two plans first meets the capacity of a GPU; from nothing half the way."""
        if not low:
            return high // 2
        crossings = []
        for before, after in zip(self.plans[low].devices, self.plans[high].devices, strict=True):
            growth = (after.on_card - before.on_card) / (high - low)
            if growth > 0:
                crossings.append(math.floor(low + (before.capacity - before.on_card) / growth))
        return min(crossings, default=2 * high)


def find_tightest_gpu(plan: Plan) -> DevicePlan:
    """Return the GPU with the least room left."""
    return min(plan.devices, key=lambda device: device.capacity - device.on_card)


# Share by which an estimate may be off; where it is more, sizes in between are run too, once.
MOST_OFF = 0.01
LARGEST = 4
"""Times the batch of the step that was asked for."""


@dataclass
class PlanGrid:
    """Plans by batch and length.

    Attributes:
        plan: plans one size.
        plans: those that were planned.
    """

    plan: Callable[[int, int], Plan]
    plans: dict[tuple[int, int], Plan] = field(default_factory=dict)

    def plan_at(self, batch: int, length: int) -> Plan:
        """Return the plan of one size."""
        if (batch, length) not in self.plans:
            self.plans[batch, length] = self.plan(batch, length)
        return self.plans[batch, length]

    def can_run(self, batch: int, length: int) -> bool:
        """Whether a step of that size runs; a model may be for texts of one length."""
        try:
            self.plan_at(batch, length)
        except DevwidgetError:
            return False
        return True

    def fit_through(self, batches: tuple[int, ...], lengths: tuple[int, ...], asked: tuple[int, int]) -> Fitted:
        """Fit through the plans of these sizes, and measure how far the fit is off in between."""
        plans = [self.plan_at(batch, length) for batch, length in itertools.product(batches, lengths)]
        gpus = tuple(
            FittedGpu(device.device, device.capacity, tuple(plan.devices[index].on_card for plan in plans))
            for index, device in enumerate(plans[0].devices)
        )
        found = Fitted(plans[0].model, plans[0].card, batches, lengths, asked, gpus)
        between = self._sizes_between(found)
        return replace(
            found, checked=len(between), off=max((self._measure_error(found, *size) for size in between), default=0.0)
        )

    def _sizes_between(self, fitted: Fitted) -> list[tuple[int, int]]:
        """Return a size within each interval of lengths, and of batches."""
        batches, lengths = _find_middles(fitted.batches), _find_middles(fitted.lengths)
        count = max(len(batches), len(lengths))
        pairs = zip(itertools.islice(itertools.cycle(batches or fitted.batches), count),
                    itertools.islice(itertools.cycle(lengths or fitted.lengths), count), strict=True)  # fmt: skip
        return list(dict.fromkeys(pairs))

    def _measure_error(self, fitted: Fitted, batch: int, length: int) -> float:
        taken = [device.on_card for device in self.plan_at(batch, length).devices]
        return max(abs(said - ran) / max(ran, 1) for said, ran in zip(fitted.at(batch, length), taken, strict=True))


def fit_plans(grid: PlanGrid, batch: int, length: int | None) -> Fitted:
    """Fit as many plans around a step as it takes to be close between them; `length` is None for what is no text."""
    batches = tuple(sorted({1, batch, 2 * batch, LARGEST * batch}))
    around = {length // 2, length, 2 * length} - {0} if length else {0}
    lengths = tuple(sorted(each for each in around if each == (length or 0) or grid.can_run(batch, each)))
    found = grid.fit_through(batches, lengths, (batch, length or 0))
    if found.off <= MOST_OFF:
        return found
    return grid.fit_through(_add_middles(batches), _add_middles(lengths), found.asked)


def _add_middles(knots: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*knots, *_find_middles(knots)}))


def _find_middles(knots: tuple[int, ...]) -> list[int]:
    return [middle for low, high in itertools.pairwise(knots) if low < (middle := (low + high) // 2) < high]
