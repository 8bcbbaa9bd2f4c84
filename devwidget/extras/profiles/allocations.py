"""The allocations of one GPU through a file, and its curve: what bytes are for follows from when they were given back."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from devwidget.records.device import DeviceId
from devwidget.records.loading.stacks import Stack
from devwidget.records.memory import ROLES, DeviceMemory, Holding, MemoryCurve, MemoryPoint, Refusal

MOST_POINTS = 1000
MOST_HOLDINGS = 20
FOREIGN = Stack("other", None, None)
_NEVER = 1 << 62


@dataclass(slots=True, eq=False)
class Allocation:
    """Bytes that were there at the start, or that an event asked for.

    Attributes:
        size: bytes.
        stack: who asked.
        name: what the program called it; "" for nothing.
        begun: number of the event, 0 for what was there at the start.
        ended: number of the event at which it was given back.
        ended_in: phase of the step then.
    """

    size: int
    stack: Stack
    begun: int = 0
    ended: int = _NEVER
    ended_in: str = ""
    name: str = ""

    @property
    def role(self) -> str:
        """What its bytes probably were for: those given back in the phase that asked for them were temporary."""
        phase = self.stack.phase
        if self.stack is FOREIGN:
            return "foreign"
        if phase == "build" or (not self.begun and phase == "other"):
            return "parameters"
        if phase in ("forward", "loss"):
            if self.ended_in in ("forward", "loss"):
                return "other"
            return "activations"
        if phase == "other":
            return "inputs"
        if phase == self.ended_in:
            return "other"
        return "gradients" if phase == "backward" else "optimizer"


@dataclass(slots=True)
class History:
    """The allocations of one GPU.

    Attributes:
        allocations: all of them.
        changes: for each event that changed something, its number, the bytes that it added, and their allocation.
        refused: allocations that did not fit, with the bytes that were free.
        living: by address what lives there.
    """

    allocations: list[Allocation] = field(default_factory=list)
    changes: list[tuple[int, int, Allocation]] = field(default_factory=list)
    refused: list[tuple[int, int, int, Stack]] = field(default_factory=list)
    living: dict[int, Allocation] = field(default_factory=dict)

    def allocate(self, address: int, size: int, stack: Stack, number: int, name: str = "") -> None:
        """Note an event that asks for bytes."""
        found = self.living[address] = Allocation(size, stack, number, name=name)
        self.allocations.append(found)
        self.changes.append((number, size, found))

    def give_back(self, address: int, size: int, number: int, phase: str) -> None:
        """Note an event that gives bytes back; those whose allocation was not seen were there at the start."""
        found = self.living.pop(address, None)
        if found is None:
            found = Allocation(size, FOREIGN)
            self.allocations.append(found)
        found.ended, found.ended_in = number, phase
        self.changes.append((number, -found.size, found))


def build_curve(device: DeviceId, history: History, reserved: int) -> MemoryCurve:
    """Build the curve of a GPU whose allocator holds `reserved` bytes at the end."""
    start = sum(each.size for each in history.allocations if not each.begun)
    levels = list(itertools.accumulate((change for _, change, _ in history.changes), initial=start))
    peak = max(range(len(levels)), key=levels.__getitem__)
    free = max((free for *_, free, _ in history.refused), default=0)
    total, cache = reserved + free if history.refused else 0, max(reserved - levels[-1], 0)
    end = DeviceMemory(device, "", False, total, activations=levels[-1], cache=cache)
    at = history.changes[peak - 1][0] if peak else 0
    return MemoryCurve(
        end,
        "allocator",
        tuple(_sample_points(history, levels)),
        tuple(_list_refusals(history, levels)),
        _sum_holdings(history, at),
    )


def _choose_extremes(levels: Sequence[int]) -> set[int]:
    """Return the places of the highest and the lowest level of each stretch, so the peak is always there."""
    step = max(1, 2 * len(levels) // MOST_POINTS)
    chosen = {len(levels) - 1}
    for first in range(0, len(levels), step):
        stretch = range(first, min(first + step, len(levels)))
        chosen |= {max(stretch, key=levels.__getitem__), min(stretch, key=levels.__getitem__)}
    return chosen


def _sample_points(history: History, levels: Sequence[int]) -> Iterator[MemoryPoint]:
    chosen, held = _choose_extremes(levels), dict.fromkeys(ROLES, 0)
    for each in history.allocations:
        if not each.begun:
            held[each.role] += each.size
    stack, number = FOREIGN, 0
    for place, level in enumerate(levels):
        if place:
            number, change, allocation = history.changes[place - 1]
            held[allocation.role] += change
            if change >= 0:
                stack = allocation.stack
        if place in chosen:
            yield MemoryPoint(number, stack.phase, stack.module, stack.site, level, **held)


def _sum_holdings(history: History, at: int) -> tuple[Holding, ...]:
    """Sum what lived at an event by who asked for it and its name, the largest first."""
    sums: Counter[tuple[str, Stack, str]] = Counter()
    for each in history.allocations:
        if each.begun <= at < each.ended:
            sums[each.role, each.stack, each.name] += each.size
    return tuple(
        Holding(role, size, stack.phase, stack.module, stack.site, name)
        for (role, stack, name), size in sums.most_common(MOST_HOLDINGS)
    )


def _list_refusals(history: History, levels: Sequence[int]) -> Iterator[Refusal]:
    for number, size, _, stack in history.refused:
        level = levels[bisect_left(history.changes, number, key=itemgetter(0))]
        yield Refusal(number, size, level, stack.phase, stack.module, stack.site)
