"""Memory snapshots of `torch.cuda.memory._dump_snapshot` as a trace: the curve of each GPU, and who made its peak.

What the file does not say is inferred: modules and phases from the stacks, what bytes are for from when they were given back.

Source of the format: `torch/cuda/_memory_viz.py` and the docstring of `torch.cuda.memory._snapshot`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.errors import UnreadableError
from devwidget.records.loading.json_io import reread
from devwidget.records.loading.stacks import NO_STACK, Stack, read_stack
from devwidget.records.loading.typed_reader import Unexpected
from devwidget.records.loading.untrusted_files import ReadingPlace, refuse_damaged
from devwidget.records.memory import ROLES, DeviceMemory, Holding, MemoryCurve, MemoryPoint, Refusal
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace

INFERRED = Message(
    "{kind}: {reason}",
    kind=Message("modules, phases and what bytes are for"),
    reason=Message("inferred from the stacks in the file and from when bytes were freed"),
)
_LARGEST = 1 << 48
# One stack stands for what was asked for, given back and lives on, in a few bytes for each of its frames.
_MOST_READINGS = 8
_AGAIN = Message("it refers to one list too many times")


def read_content(name: str, content: Any, size: int) -> Trace | None:
    """Read a memory snapshot from a file of so many bytes; None for the file of another tool."""
    if not isinstance(content, dict) or not content.keys() & {"segments", "device_traces"}:
        return None
    with refuse_damaged(lambda error: Message("not a memory snapshot of torch: {error}", error=error)) as reading:
        segments, traces = content["segments"], content["device_traces"]
        # Every event and block takes several bytes in the file: no more are looked at.
        if sum(map(len, traces)) + sum(len(segment["blocks"]) for segment in segments) > size:
            raise UnreadableError(_AGAIN)
        curves = tuple(_read_curves(segments, traces, _StackReader(_MOST_READINGS * size), reading))
        notes = [INFERRED]
        for curve in curves:
            share = 1 - owned_share(curve)
            if share:
                facts = {"share": f"{share:.1%}", "device": curve.device}
                what = Message("who owns {share} of the bytes at the peak of {device}", **facts)
                notes.append(Message("{kind}: {reason}", kind=what, reason=Message("no stack in the file")))
        reading.move_to("")
        return reread(Trace(memory=curves, not_checked=tuple(notes)))


def owned_share(curve: MemoryCurve) -> float:
    """Return the part of the bytes at the peak whose owner is known."""
    peak = curve.peak
    if peak is not None and peak.allocated:
        return 1 - peak.foreign / peak.allocated
    return 1.0


def _read_curves(
    segments: Sequence[dict[str, Any]], traces: Sequence[Sequence[dict[str, Any]]], reader: _StackReader, reading: ReadingPlace
) -> Iterator[MemoryCurve]:
    for index, events in enumerate(traces):
        own = [segment for segment in segments if segment.get("device", 0) == index]
        if events or own:
            reserved = sum(_check_bytes(segment["total_size"]) for segment in own)
            yield build_curve(DeviceId("cuda", index), _read_history(index, events, own, reader, reading), reserved)


class _StackReader:
    """Reads each stack once: torch writes one object for all occurrences of a frame, and most stacks come again.

    Args:
        most: frames that are looked at; a file can name one list of them again and again.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: dict[tuple[int, ...], Stack] = {}

    def __call__(self, frames: list[dict[str, Any]]) -> Stack:
        self._left -= len(frames)
        if self._left < 0:
            raise UnreadableError(_AGAIN)
        key = tuple(map(id, frames))
        if key not in self._known:
            self._known[key] = read_stack(frames)
        return self._known[key]


def _read_history(
    index: int, events: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]], read: _StackReader, reading: ReadingPlace
) -> History:
    history, phase = History(), "other"
    unknown = NO_STACK if any(event.get("frames") for event in events) else FOREIGN
    for number, event in enumerate(reading.iterate_list(f"device_traces[{index}]", events), 1):
        match event["action"]:
            case "alloc":
                stack = read(event["frames"]) if event.get("frames") else unknown
                phase = stack.phase
                # Torch writes the name into events alone, not into blocks.
                history.allocate(event["addr"], _check_bytes(event["size"]), stack, number, event.get("user_metadata", ""))
            case "free_requested":
                # Without frames: one of autograd's threads, or a file without stacks of what is freed.
                frames = event.get("frames")
                freed_in = read(frames).phase if frames else phase
                history.give_back(event["addr"], _check_bytes(event["size"]), number, freed_in)
            case "oom":
                stack = read(event["frames"]) if event.get("frames") else FOREIGN
                free = _check_bytes(event.get("device_free", 0))
                history.refused.append((number, _check_bytes(event["size"]), free, stack))
    # Blocks in use at the end that no event asked for were there at the start.
    for segment in reading.iterate_list("segments", segments):
        address = segment["address"]
        for block in segment["blocks"]:
            size, frames = _check_bytes(block["size"]), block.get("frames")
            if block["state"] == "active_allocated" and block.get("address", address) not in history.living:
                history.allocations.append(Allocation(size, read(frames) if frames else FOREIGN))
            address += size
    return history


def _check_bytes(size: int) -> int:
    if type(size) is not int or not 0 <= size < _LARGEST:
        raise Unexpected(Message("bytes, less than 2**48"), size)
    return size


# The allocations of one GPU through a file: what bytes are for follows from when they were given back.

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
