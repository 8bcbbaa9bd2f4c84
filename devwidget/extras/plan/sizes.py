"""Questions along sizes: the largest that fits, and what a step takes between batches and lengths that were planned."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from devwidget.extras.plan.questions import Question, Wanted
from devwidget.extras.plan.records.answers import Fitted, FittedGpu
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.errors import DevwidgetError

# Enough for bisection where the need does not grow along a line.
MOST_PLANS = 24
# Times the largest size that fits: small ones grow along another line, where the optimizer's step is the peak.
MOST_AT_ONCE = 16

WantSize: TypeAlias = Callable[[int], Wanted]
MeasureRooms: TypeAlias = Callable[[Plan], list[int]]


def planned_rooms(plan: Plan) -> list[int]:
    """Return the bytes that are left on each GPU; less than zero where they are missing."""
    return [device.capacity - device.on_card for device in plan.devices]


def least_rooms(plan: Plan) -> list[int]:
    """Return the same if each GPU takes the most that its prediction stands for."""
    return [device.capacity - device.on_card_band[1] for device in plan.devices]


def largest_fitting(plans: dict[int, Plan], measure: MeasureRooms = planned_rooms) -> int:
    """Return the largest size that was planned and fits; 0 if none does."""
    return max((size for size, plan in plans.items() if min(measure(plan)) >= 0), default=0)


def search_largest(plans: dict[int, Plan], want: WantSize, measure: MeasureRooms = planned_rooms) -> Question[int]:
    """Return the largest size that fits, planned itself; the next larger does not fit.

    Args:
        plans: those that were planned by size, one or more; what is planned comes to them.
        want: a size -> the step to be planned.
        measure: the room that a plan leaves.
    """
    most = len(plans) - 1 + MOST_PLANS
    while len(plans) < most:
        size = _choose_size({size: measure(plan) for size, plan in plans.items()})
        if size is None or size in plans:
            break
        plans[size] = yield want(size)
    return largest_fitting(plans, measure)


def _choose_size(rooms: dict[int, list[int]]) -> int | None:
    """Return the size to be planned next; None if the answer is known."""
    fitting = max((size for size, room in rooms.items() if min(room) >= 0), default=0)
    failing = min((size for size, room in rooms.items() if min(room) < 0), default=None)
    if failing == fitting + 1:
        return None
    if failing is None:
        before = max((size for size in rooms if size < fitting), default=None)
        guess = 2 * fitting if before is None else _meet_capacity(rooms, before, fitting)
        return min(max(guess, fitting + 1), MOST_AT_ONCE * fitting)
    guess = (fitting + failing) // 2
    if fitting and len(rooms) % 3:
        guess = _meet_capacity(rooms, fitting, failing)
    return min(max(guess, fitting + 1), failing - 1)


def _meet_capacity(rooms: dict[int, list[int]], low: int, high: int) -> int:
    """Return where the line through two plans first meets the capacity of a GPU."""
    crossings = []
    for before, after in zip(rooms[low], rooms[high], strict=True):
        growth = (before - after) / (high - low)
        if growth > 0:
            crossings.append(math.floor(low + before / growth))
    return min(crossings, default=2 * high)


# Share by which an estimate may be off; where it is more, sizes in between are run too, once.
MOST_OFF = 0.01
LARGEST = 4
"""Times the batch of the step that was asked for."""

Grid: TypeAlias = dict[tuple[int, int], Plan]
"""Plans by batch and length."""


def fit_plans(first: Plan, batch: int, length: int) -> Question[Fitted]:
    """Fit as many plans around a step as it takes to be close between them; `length` is 0 for what is no text."""
    plans: Grid = {(batch, length): first}
    batches = tuple(sorted({1, batch, 2 * batch, LARGEST * batch}))
    lengths = []
    for each in sorted({length // 2, length, 2 * length} - ({0} if length else set())):
        if each == length or (yield from _can_run(plans, batch, each)):
            lengths.append(each)
    found = yield from _fit_through(plans, batches, tuple(lengths), (batch, length))
    if found.off <= MOST_OFF:
        return found
    return (yield from _fit_through(plans, _add_middles(batches), _add_middles(found.lengths), found.asked))


def _plan_at(plans: Grid, batch: int, length: int) -> Question[Plan]:
    if (batch, length) not in plans:
        plans[batch, length] = yield Wanted(batch=batch, length=length)
    return plans[batch, length]


def _can_run(plans: Grid, batch: int, length: int) -> Question[bool]:
    """Whether a step of that size runs; a model may be for texts of one length."""
    try:
        yield from _plan_at(plans, batch, length)
    except DevwidgetError:
        return False
    return True


def _fit_through(plans: Grid, batches: tuple[int, ...], lengths: tuple[int, ...], asked: tuple[int, int]) -> Question[Fitted]:
    """Fit through the plans of these sizes, and measure how far the fit is off in between."""
    knots = []
    for batch, length in itertools.product(batches, lengths):
        knots.append((yield from _plan_at(plans, batch, length)))
    gpus = tuple(
        FittedGpu(device.device, device.capacity, tuple(plan.devices[index].on_card for plan in knots))
        for index, device in enumerate(knots[0].devices)
    )
    found = Fitted(knots[0].model, knots[0].card, batches, lengths, asked, gpus)
    between, off = _sizes_between(found), 0.0
    for batch, length in between:
        ran = yield from _plan_at(plans, batch, length)
        off = max(off, _measure_error(found.estimate_at(batch, length), ran))
    return replace(found, checked=len(between), off=off)


def _measure_error(estimates: tuple[int, ...], ran: Plan) -> float:
    """Return the largest share by which a GPU is estimated wrong."""
    taken = [device.on_card for device in ran.devices]
    return max(abs(said - size) / max(size, 1) for said, size in zip(estimates, taken, strict=True))


def _sizes_between(fitted: Fitted) -> list[tuple[int, int]]:
    """Return a size within each interval of lengths, and of batches."""
    batches, lengths = _find_middles(fitted.batches), _find_middles(fitted.lengths)
    count = max(len(batches), len(lengths))
    batches_again = itertools.islice(itertools.cycle(batches or fitted.batches), count)
    lengths_again = itertools.islice(itertools.cycle(lengths or fitted.lengths), count)
    return list(dict.fromkeys(zip(batches_again, lengths_again, strict=True)))


def _add_middles(knots: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*knots, *_find_middles(knots)}))


def _find_middles(knots: tuple[int, ...]) -> list[int]:
    return [middle for low, high in itertools.pairwise(knots) if low < (middle := (low + high) // 2) < high]
