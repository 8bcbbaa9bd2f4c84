"""Largest: finds the largest size that fits, with few plans, where more takes more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from devwidget.records.plan import DevicePlan, Plan

MOST_PLANS = 24
"""Enough for bisection where the need does not grow along a line."""
MOST_AT_ONCE = 16
"""Times the largest size that fits: small ones grow along another line, where the optimizer's step is the peak."""


@dataclass
class Largest:
    """A search along sizes.

    Attributes:
        plan: plans one size.
        plans: those that were planned; at least one to begin with.
    """

    plan: Callable[[int], Plan]
    plans: dict[int, Plan]

    def answer(self) -> int:
        """The largest size that is known to fit; 0 if none is."""
        return max((size for size, plan in self.plans.items() if plan.fits), default=0)

    def search(self) -> None:
        """Plan until the answer fits and the next larger size does not."""
        (size,) = self.plans
        second = 2 * size if self.plans[size].fits else max(size // 2, 1)
        if second != size:
            self.plans[second] = self.plan(second)
        while len(self.plans) < MOST_PLANS and (following := self._next()) is not None:
            self.plans[following] = self.plan(following)

    def _next(self) -> int | None:
        fitting, failing = self.answer(), min((size for size, plan in self.plans.items() if not plan.fits), default=None)
        if failing is None:
            before = max((size for size in self.plans if size < fitting), default=0)
            return min(max(self._crossing(before, fitting), fitting + 1), MOST_AT_ONCE * fitting)
        if failing == fitting + 1:
            return None
        guess = self._crossing(fitting, failing) if len(self.plans) % 3 else (fitting + failing) // 2
        return min(max(guess, fitting + 1), failing - 1)

    def _crossing(self, low: int, high: int) -> int:
        """Where the line through two plans meets the capacity of a GPU first; halfway from nothing where there is one plan."""
        if not low:
            return high // 2
        crossings = []
        for before, after in zip(self.plans[low].devices, self.plans[high].devices, strict=True):
            growth = (after.on_card - before.on_card) / (high - low)
            if growth > 0:
                crossings.append(math.floor(low + (before.capacity - before.on_card) / growth))
        return min(crossings, default=2 * high)


def tightest(plan: Plan) -> DevicePlan:
    """The GPU with the least room left."""
    return min(plan.devices, key=lambda device: device.capacity - device.on_card)
