"""The allocations of one GPU through a file, and its curve: what bytes are for follows from when they were given back."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from devwidget.records.device import DeviceId
from devwidget.records.loading.stacks import Stack
from devwidget.records.memory import ROLES, DeviceMemory, Holding, MemoryCurve, MemoryPoint, Refusal

MOST_POINTS = 1000
MOST_HOLDINGS = 20
FOREIGN = Stack("other", None, None)
_NEVER = 1 << 62


@dataclass(slots=True)
class History:
    """The allocations of one GPU, side by side: what was there at the start, then those that were seen.

    Attributes:
        sizes: bytes.
        stacks: who asked.
        begun: number of the event, 0 for what was there at the start.
        ended: number of the event at which it was given back.
        ended_in: phase of the step then.
        marks: for each event that changed something, its number and the bytes that it added.
        refused: allocations that did not fit, with the bytes that were free.
        living: by address the place of what lives there.
    """

    sizes: list[int] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    ended_in: list[str] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, int, int, Stack]] = field(default_factory=list)
    living: dict[int, int] = field(default_factory=dict)

    def add_allocation(self, size: int, stack: Stack, number: int) -> int:
        """Add an allocation, and return its place in the lists."""
        self.sizes.append(size)
        self.stacks.append(stack)
        self.begun.append(number)
        self.ended.append(_NEVER)
        self.ended_in.append("")
        return len(self.sizes) - 1

    def allocate(self, address: int, size: int, stack: Stack, number: int) -> None:
        """Note an event that asks for bytes."""
        self.living[address] = self.add_allocation(size, stack, number)
        self.marks.append((number, size))

    def give_back(self, address: int, number: int, phase: str) -> bool:
        """Note an event that gives bytes back; return False if their allocation was not seen."""
        place = self.living.pop(address, None)
        if place is None:
            return False
        self.ended[place], self.ended_in[place] = number, phase
        self.marks.append((number, -self.sizes[place]))
        return True

    def split_foreign(self, size: int) -> int:
        """Take from what was there at the start a part that is given back alone, and return its place."""
        if self.sizes and self.stacks[0] is FOREIGN:
            self.sizes[0] = max(0, self.sizes[0] - size)
        return self.add_allocation(size, FOREIGN, 0)


def _infer_role(stack: Stack, begun: int, ended_in: str) -> str:
    """Infer what bytes were for: those given back in the phase that asked for them were temporary."""
    if stack is FOREIGN:
        return "foreign"
    phase = stack.phase
    if phase == "build" or (not begun and phase == "other"):
        return "parameters"
    if phase in ("forward", "loss"):
        if ended_in in ("forward", "loss"):
            return "other"
        return "activations"
    if phase == "other":
        return "inputs"
    kept = "gradients" if phase == "backward" else "optimizer"
    return "other" if phase == ended_in else kept


def build_curve(device: DeviceId, history: History, reserved: int) -> MemoryCurve:
    """Build the curve of a GPU whose allocator holds `reserved` bytes at the end."""
    roles = list(map(_infer_role, history.stacks, history.begun, history.ended_in))
    start = sum(size for size, begun in zip(history.sizes, history.begun, strict=True) if not begun)
    levels = list(itertools.accumulate((change for _, change in history.marks), initial=start))
    peak = max(range(len(levels)), key=levels.__getitem__)
    points = tuple(_sample_points(history, roles, levels, _choose_extremes(levels)))
    free = max((free for *_, free, _ in history.refused), default=0)
    total, cache = reserved + free if history.refused else 0, max(reserved - levels[-1], 0)
    end = DeviceMemory(device, "", False, total, activations=levels[-1], cache=cache)
    at = history.marks[peak - 1][0] if peak else 0
    return MemoryCurve(end, "allocator", points, tuple(_list_refusals(history, levels)), _sum_holdings(history, roles, at))


def _choose_extremes(levels: Sequence[int]) -> set[int]:
    """Return the places of the highest and the lowest level of each stretch, so the peak is always there."""
    step = max(1, 2 * len(levels) // MOST_POINTS)
    chosen = {len(levels) - 1}
    for first in range(0, len(levels), step):
        stretch = range(first, min(first + step, len(levels)))
        chosen |= {max(stretch, key=levels.__getitem__), min(stretch, key=levels.__getitem__)}
    return chosen


def _sample_points(history: History, roles: Sequence[str], levels: Sequence[int], chosen: set[int]) -> Iterator[MemoryPoint]:
    """Yield the levels at some places, with what the bytes were for."""
    begins, ends = ({number: place for place, number in enumerate(numbers)} for numbers in (history.begun, history.ended))
    held = dict.fromkeys(ROLES, 0)
    for role, size, begun in zip(roles, history.sizes, history.begun, strict=True):
        held[role] += 0 if begun else size
    stack, number = FOREIGN, 0
    for place, level in enumerate(levels):
        if place:
            number, change = history.marks[place - 1]
            allocation = begins[number] if change >= 0 and number in begins else ends[number]
            held[roles[allocation]] += change
            if change >= 0:
                stack = history.stacks[allocation]
        if place in chosen:
            yield MemoryPoint(number, stack.phase, stack.module, stack.site, level, **held)


def _sum_holdings(history: History, roles: Sequence[str], at: int) -> tuple[Holding, ...]:
    """Sum what lived at an event by who asked for it, the largest first."""
    sums: Counter[tuple[str, Stack]] = Counter()
    for role, stack, size, begun, ended in zip(roles, history.stacks, history.sizes, history.begun, history.ended, strict=True):
        if begun <= at < ended:
            sums[role, stack] += size
    return tuple(
        Holding(role, size, stack.phase, stack.module, stack.site) for (role, stack), size in sums.most_common(MOST_HOLDINGS)
    )


def _list_refusals(history: History, levels: Sequence[int]) -> Iterator[Refusal]:
    numbers = [number for number, _ in history.marks]
    for number, size, _, stack in history.refused:
        level = levels[bisect_left(numbers, number)]
        yield Refusal(number, size, level, stack.phase, stack.module, stack.site)
