"""Questions along sizes: the largest that fits, and what a step takes with other batches and lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from devwidget.extras.plan.changes import Changed
from devwidget.extras.plan.questions import Question
from devwidget.extras.plan.records.answers import AskedSize, Fitted, Tried
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.errors import DevwidgetError

# Enough for bisection where the need does not grow along a line.
MOST_PLANS = 24
# Times the largest size that fits: small ones grow along another line, where the optimizer's step is the peak.
MOST_AT_ONCE = 16

WantSize: TypeAlias = Callable[[int], Changed]
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
        size = choose_size({size: measure(plan) for size, plan in plans.items()})
        if size is None or size in plans:
            break
        plans[size] = yield want(size)
    return largest_fitting(plans, measure)


def find_ends(rooms: dict[int, list[int]]) -> tuple[int, int]:
    """Return the largest size that fits and the smallest that does not, by the room on each GPU; 0 for none."""
    fitting = max((size for size, room in rooms.items() if min(room) >= 0), default=0)
    failing = min((size for size, room in rooms.items() if min(room) < 0), default=0)
    return fitting, failing


def choose_size(rooms: dict[int, list[int]]) -> int | None:
    """Return the size to be planned next; None if the answer is known."""
    fitting, failing = find_ends(rooms)
    if failing == fitting + 1:
        return None
    if not failing:
        before, guess = max((size for size in rooms if size < fitting), default=None), 2 * fitting
        if before is not None:
            guess = _meet_capacity(rooms, before, fitting)
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


LARGEST = 4
"""Times the batch of the step that was asked for."""
Grid: TypeAlias = dict[tuple[int, int], Plan]
"""Plans by batch and length."""


def plan_sizes(first: Plan, setting: AskedSize) -> Question[Fitted]:
    """Plan several batches and lengths of texts around a step."""
    batch, length = setting.batch, setting.length
    plans: Grid = {(batch, length): first}
    batches = sorted({1, batch, 2 * batch, LARGEST * batch})
    lengths = []
    for each in sorted({length // 2, length, 2 * length}):
        if each == length or (each and (yield from _can_run(plans, batch, each))):
            lengths.append(each)
    tried = []
    for samples, tokens in itertools.product(batches, lengths):
        plan = yield from _plan_at(plans, samples, tokens)
        tried.append(Tried("", plan.room, setting=replace(setting, batch=samples, length=tokens)))
    return Fitted(first.model, tuple(tried), (batch, length))


def _plan_at(plans: Grid, batch: int, length: int) -> Question[Plan]:
    if (batch, length) not in plans:
        plans[batch, length] = yield Changed(batch=batch, length=length)
    return plans[batch, length]


def _can_run(plans: Grid, batch: int, length: int) -> Question[bool]:
    """Whether a step of that size runs; a model may be for texts of one length."""
    try:
        yield from _plan_at(plans, batch, length)
    except DevwidgetError:
        return False
    return True
