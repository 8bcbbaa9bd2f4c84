"""Memory snapshots of `torch.cuda.memory._dump_snapshot` as a trace: the curve of each GPU, and who made its peak.

What the file does not say is inferred: modules and phases from the stacks, what bytes are for from when they were given back.

Source of the format: `torch/cuda/_memory_viz.py` and the docstring of `torch.cuda.memory._snapshot`.
"""

from __future__ import annotations

import itertools
import pathlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from devwidget.opening.plain_pickle import load_plain, uncollected
from devwidget.opening.stacks import NO_STACK, Stack, read_stack
from devwidget.records.device import DeviceId
from devwidget.records.memory import DeviceMemory
from devwidget.records.memory_curve import ROLES, Holding, MemoryCurve, MemoryPoint, Refusal
from devwidget.records.trace import Trace

MOST_POINTS = 1000
MOST_HOLDINGS = 20
INFERRED = "modules, phases and what bytes are for: inferred from the stacks in the file and from when bytes were given back"
_NEVER = 1 << 62
_LARGEST = 1 << 60
_FOREIGN = Stack("other", None, None)


@dataclass(slots=True)
class _History:
    """The allocations of one GPU, side by side: what was there at the start, then those that were seen.

    Attributes:
        sizes: bytes.
        stacks: who asked.
        begun: number of the event, 0 for what was there at the start.
        ended: number of the event at which it was given back.
        ended_in: phase of the step then.
        marks: for each event that changed something, its number and the bytes that it added.
        refused: allocations that did not fit, with the bytes that were free.
    """

    sizes: list[int] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    ended_in: list[str] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, int, int, Stack]] = field(default_factory=list)

    def add(self, size: int, stack: Stack, number: int) -> int:
        self.sizes.append(size)
        self.stacks.append(stack)
        self.begun.append(number)
        self.ended.append(_NEVER)
        self.ended_in.append("")
        return len(self.sizes) - 1


@uncollected()
def read_memory_snapshot(path: pathlib.Path) -> Trace:
    """The trace of a memory snapshot.

    Raises:
        ValueError: if the file is something else.
    """
    content = load_plain(path)
    try:
        segments, traces = content["segments"], content["device_traces"]
        most = path.stat().st_size  # every event and block takes several bytes: no more are looked at
        if sum(map(len, traces)) + sum(len(segment["blocks"]) for segment in segments) > most:
            raise ValueError("it names one list again and again")
        curves = tuple(_curves(segments, traces))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not a memory snapshot of torch: {type(error).__name__} {error}") from None
    unknown = [(curve.device, 1 - owned_share(curve)) for curve in curves]
    missing = [
        f"who owns {share:.1%} of the bytes at the peak of {device}: no stack in the file" for device, share in unknown if share
    ]
    return Trace(memory=curves, not_checked=(INFERRED, *missing))


def owned_share(curve: MemoryCurve) -> float:
    """The part of the bytes at the peak whose owner is known."""
    peak = curve.peak
    return 1 - peak.foreign / peak.allocated if peak is not None and peak.allocated else 1.0


def _curves(segments: Sequence[dict[str, Any]], traces: Sequence[Sequence[dict[str, Any]]]) -> Iterator[MemoryCurve]:
    reader = _StackReader()
    for index, events in enumerate(traces):
        own = [segment for segment in segments if segment.get("device", 0) == index]
        if events or own:
            yield _curve(DeviceId("cuda", index), _history(events, own, reader), own)


class _StackReader:
    """Reads each stack once: torch writes one object for all occurrences of a frame, and most stacks come again."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Stack] = {}

    def __call__(self, frames: list[dict[str, Any]]) -> Stack:
        key = tuple(map(id, frames))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = read_stack(frames)
        return found


def _history(events: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]], read: _StackReader) -> _History:
    history, living = _History(), dict[int, int]()
    before: list[tuple[int, int]] = []
    phase = "other"
    has_stacks = any(event.get("frames") for event in events)
    for number, event in enumerate(events, 1):
        action = event["action"]
        if action == "alloc":
            size, frames = _checked(event["size"]), event.get("frames", ())
            stack = read(frames) if frames else NO_STACK if has_stacks else _FOREIGN
            phase = stack.phase
            living[event["addr"]] = history.add(size, stack, number)
            history.marks.append((number, size))
        elif action == "free_requested":
            place = living.pop(event["addr"], None)
            size = _checked(event["size"]) if place is None else history.sizes[place]
            if place is None:
                before.append((number, size))
            else:
                frames = event.get("frames")  # without: one of autograd's threads, or a file without stacks of what is freed
                history.ended[place], history.ended_in[place] = number, read(frames).phase if frames else phase
            history.marks.append((number, -size))
        elif action == "oom":
            stack = read(event["frames"]) if event.get("frames") else _FOREIGN
            history.refused.append((number, _checked(event["size"]), _checked(event.get("device_free", 0)), stack))
    _older(history, living, before, segments, read)
    return history


def _older(
    history: _History,
    living: dict[int, int],
    before: list[tuple[int, int]],
    segments: Sequence[dict[str, Any]],
    read: _StackReader,
) -> None:
    """What was there at the start: blocks that are in use at the end and were not seen, and what was given back unseen."""
    for number, size in before:
        place = history.add(size, _FOREIGN, 0)
        history.ended[place] = number
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            at = block.get("address", address)
            if block["state"] == "active_allocated" and at not in living:
                history.add(_checked(block["size"]), read(block["frames"]) if block.get("frames") else _FOREIGN, 0)
            address += _checked(block["size"])


def _checked(size: int) -> int:
    if not 0 <= size < _LARGEST:
        raise ValueError(f"not a memory snapshot of torch: an allocation of {size} bytes")
    return size


def _role(stack: Stack, begun: int, ended_in: str) -> str:
    """What bytes were for: those given back in the phase that asked for them were temporary."""
    if stack is _FOREIGN:
        return "foreign"
    phase = stack.phase
    if phase == "build" or (not begun and phase == "other"):
        return "parameters"
    if phase in ("forward", "loss"):
        return "other" if ended_in in ("forward", "loss") else "activations"
    if phase == "other":
        return "inputs"
    kept = "gradients" if phase == "backward" else "optimizer"
    return "other" if phase == ended_in else kept


def _curve(device: DeviceId, history: _History, segments: Sequence[dict[str, Any]]) -> MemoryCurve:
    roles = list(map(_role, history.stacks, history.begun, history.ended_in))
    start = sum(size for size, begun in zip(history.sizes, history.begun, strict=True) if not begun)
    levels = list(itertools.accumulate((change for _, change in history.marks), initial=start))
    peak = max(range(len(levels)), key=levels.__getitem__)
    points = tuple(_points(history, roles, levels, _chosen(levels)))
    reserved = sum(_checked(segment["total_size"]) for segment in segments)
    free = max((free for *_, free, _ in history.refused), default=0)
    end = DeviceMemory(
        device,
        "",
        False,
        reserved + free if history.refused else 0,
        activations=levels[-1],
        cache=max(reserved - levels[-1], 0),
    )
    at = history.marks[peak - 1][0] if peak else 0
    return MemoryCurve(end, "allocator", points, tuple(_refusals(history, levels)), _holdings(history, roles, at))


def _chosen(levels: Sequence[int]) -> set[int]:
    """Places of the highest and the lowest level of each stretch, so the peak is always there."""
    step = max(1, 2 * len(levels) // MOST_POINTS)
    stretches = (range(first, min(first + step, len(levels))) for first in range(0, len(levels), step))
    ends = ((max(each, key=levels.__getitem__), min(each, key=levels.__getitem__)) for each in stretches)
    return {place for pair in ends for place in pair} | {len(levels) - 1}


def _points(history: _History, roles: Sequence[str], levels: Sequence[int], chosen: set[int]) -> Iterator[MemoryPoint]:
    """The levels at some places, with what the bytes were for."""
    begins, ends = (
        dict(zip(history.begun, range(len(roles)), strict=True)),
        dict(zip(history.ended, range(len(roles)), strict=True)),
    )
    held = dict.fromkeys(ROLES, 0)
    for role, size, begun in zip(roles, history.sizes, history.begun, strict=True):
        held[role] += 0 if begun else size
    stack = _FOREIGN
    for place, level in enumerate(levels):
        if place:
            number, change = history.marks[place - 1]
            allocation = begins[number] if change >= 0 and number in begins else ends[number]
            held[roles[allocation]] += change
            stack = history.stacks[allocation] if change >= 0 else stack
        if place in chosen:
            number = history.marks[place - 1][0] if place else 0
            yield MemoryPoint(number, stack.phase, stack.module, stack.site, level, **held)


def _holdings(history: _History, roles: Sequence[str], at: int) -> tuple[Holding, ...]:
    """What lived at an event, by who asked for it, the largest first."""
    sums: Counter[tuple[str, Stack]] = Counter()
    for role, stack, size, begun, ended in zip(roles, history.stacks, history.sizes, history.begun, history.ended, strict=True):
        if begun <= at < ended:
            sums[role, stack] += size
    return tuple(
        Holding(role, size, stack.phase, stack.module, stack.site) for (role, stack), size in sums.most_common(MOST_HOLDINGS)
    )


def _refusals(history: _History, levels: Sequence[int]) -> Iterator[Refusal]:
    numbers = [number for number, _ in history.marks]
    for number, size, _, stack in history.refused:
        level = levels[bisect_left(numbers, number)]
        yield Refusal(number, size, level, stack.phase, stack.module, stack.site)
