"""Fold allocations of a recording into points, once the role of each block is known."""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.recording.module_tracker import ThreadPlace
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.records.memory import (
    HELD,
    MOST_HOLDINGS,
    ROLES,
    UNKNOWN,
    DeviceMemory,
    Holding,
    MemoryCurve,
    MemoryPoint,
    PeakShare,
    Refusal,
)
from devwidget.records.site import Phase

MOST_POINTS = 400
"""Points kept per device. A step of GPT-2 makes some thousand allocations, and a screen has some thousand columns."""
MOST_EVENTS = 100_000
"""Events kept until they are folded. A longer step is folded before the roles of all blocks are known."""
_COPIES = {"scatter": "inputs", "replicate": "parameters", "gather": "gathered"}
_PLACE = {role: place for place, role in enumerate(ROLES)}
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(slots=True, eq=False)
class Event:
    """A block was allocated. Without a block, a look at a device.

    Attributes:
        held: bytes in use on the device from then on.
        refused: bytes of a failed request.
    """

    number: int
    phase: Phase
    module: str | None
    site: RawSite | None
    index: int
    held: int
    block: MemoryBlock | None = None
    refused: int = 0


Live = dict[MemoryBlock, Event | None]
"""Blocks in use with the event that allocated each; None for blocks from before the recording."""


class Point(NamedTuple):
    """A device right after an event, with bytes by role."""

    event: Event
    parts: dict[str, int]

    def make_record(self) -> MemoryPoint:
        """Return the point as a record."""
        event = self.event
        return MemoryPoint(event.number, event.phase, event.module, to_site(event.site), event.held, **self.parts)


class DeviceCurve:
    """One device: its folded points and its blocks in use."""

    def __init__(self) -> None:
        self.live: Live = {}
        self._points: list[Point] = []
        self._refusals: list[Refusal] = []
        self._peak = -1
        self._most_kept = 0
        self._before: int | None = None
        self._holdings: tuple[Holding, ...] = ()
        self._shares: tuple[PeakShare, ...] = ()
        self._kept: tuple[PeakShare, ...] = ()

    def fold_events(self, events: list[Event | MemoryBlock]) -> None:
        """Apply events, with the roles known so far. A block without an event was freed."""
        live_before, sums = self.live.copy(), dict.fromkeys(ROLES, 0)
        for block in self.live:
            sums[block.role] += block.size
        peak = fullest = -1
        for place, event in enumerate(events):
            change = _apply_event(event, self.live)
            changed = event if isinstance(event, MemoryBlock) else event.block
            if changed is not None:
                sums[changed.role] += change
            if sums["activations"] > self._most_kept:
                self._most_kept, fullest = sums["activations"], place
            if isinstance(event, MemoryBlock):
                continue
            self._add_point(event, sums)
            if event.held > self._peak:
                self._peak, peak = event.held, place
        if peak >= 0:
            live = _go_on(live_before, events[: peak + 1])
            self._holdings, self._shares = _list_holdings(live), _list_shares(live, ROLES, self._peak)
        if fullest >= 0:
            self._kept = _list_shares(_go_on(live_before, events[: fullest + 1]), {"activations"})
        self._points = thin_points(self._points)

    def _add_point(self, event: Event, sums: dict[str, int]) -> None:
        if self._before is None:
            self._before = max(0, event.held - sum(sums.values()))
        point = Point(event, _fit_parts(sums, event.held, self._before))
        self._points.append(point)
        if event.refused:
            at = point.make_record()
            place = at.number, event.refused, at.allocated, at.phase, at.module, at.site
            self._refusals.append(Refusal(*place, at, _list_holdings(self.live)))

    def list_living(self) -> dict[MemoryBlock, Holding]:
        """Return the blocks in use that were allocated during the recording."""
        return {
            block: Holding(block.role, block.size, event.phase, event.module, to_site(event.site))
            for block, event in self.live.items()
            if event is not None
        }

    def make_record(self, end: DeviceMemory) -> MemoryCurve:
        """Return the curve as a record; `end` is the state of the device at the end."""
        points = tuple(point.make_record() for point in self._points)
        if points:
            held = {role: getattr(points[-1], role) for role in HELD}
            end = replace(end, **held, activations=end.activations - sum(held.values()))
        return MemoryCurve(
            end,
            "allocator",
            points,
            refused=tuple(self._refusals),
            holdings=self._holdings,
            shares=self._shares,
            kept=self._kept,
        )


class Curves:
    """Listens to allocations in all threads.

    Attributes:
        calling: the user's line that runs backward, which has threads of its own on CUDA.
        freed: called with a block that was freed. Not a method, because every freed storage comes here.
    """

    def __init__(self, state: RecordingState) -> None:
        self.calling: RawSite | None = None
        self._tracker, self._log = state.tracker, state.log
        self._lock = threading.RLock()
        self._events: list[Event | MemoryBlock] = []
        self.freed: Callable[[MemoryBlock], None] = self._events.append
        self._devices: defaultdict[int, DeviceCurve] = defaultdict(DeviceCurve)

    # -- what the source tells

    def begin(self, blocks: Collection[MemoryBlock]) -> None:
        """Register the blocks from before the recording."""
        with self._lock:
            for block in blocks:
                # Until it is found to be the model's; an earlier recording may have said so of another.
                block.owner, block.role = None, "foreign"
                self._devices[block.index].live[block] = None

    def taken(self, block: MemoryBlock, held: int) -> None:
        """Note that a block is in use."""
        here = self._tracker.threads.place
        event = self._add_event(here, block.index, held, block)
        block.inside = bool(here.stack)
        if event.phase != "backward":  # where gradients are scattered
            block.role = _COPIES.get(here.cause, block.role)
        if len(self._events) > MOST_EVENTS:
            self.fold_events()

    def refused(self, index: int, size: int, held: int) -> None:
        """Note that an allocation failed."""
        self._add_event(self._tracker.here, index, held, refused=size)

    def mark(self, index: int, held: int) -> None:
        """Look at a device without an allocation: the end of a phase."""
        self._add_event(self._tracker.here, index, held).site = None  # the look is ours

    def _add_event(self, here: ThreadPlace, index: int, held: int, block: MemoryBlock | None = None, refused: int = 0) -> Event:
        tracker = self._tracker
        phase: Phase = tracker.forced or ("forward" if here.stack else tracker.phase)
        module, site = here.path, here.operator_site or tracker.find_site(sys._getframe(2))
        if phase == "backward" and module is None:
            made = tracker.forward_nodes.find_node()
            module, site = made[1] if made is not None else None, site or self.calling
        event = Event(self._log.number(), phase, module, site, index, held, block, refused)
        self._events.append(event)
        return event

    # -- what is asked

    def fold_events(self) -> None:
        """Fold the events so far into points."""
        with uninterrupted(), self._lock:  # what is taken out of the list is counted
            events = self._events.copy()
            del self._events[: len(events)]  # others may have come meanwhile
            own: defaultdict[int, list[Event | MemoryBlock]] = defaultdict(list)
            for event in events:
                own[event.index].append(event)
            for index, of_device in own.items():
                self._devices[index].fold_events(of_device)

    def list_living(self, index: int) -> dict[MemoryBlock, Holding]:
        """Return what was allocated on one device during the recording and is in use."""
        self.fold_events()
        return self._devices[index].list_living()

    def make_record(self, index: int, end: DeviceMemory) -> MemoryCurve:
        """Return the curve of one device whose events are folded."""
        return self._devices[index].make_record(end)


def _apply_event(event: Event | MemoryBlock, live: Live) -> int:
    """Add or remove a block in use; return the change in bytes."""
    if isinstance(event, Event):
        if event.block is None:
            return 0
        live[event.block] = event
        return event.block.size
    if event not in live:
        return 0
    del live[event]
    return -event.size


def _go_on(live: Live, events: Iterable[Event | MemoryBlock]) -> Live:
    """Return what is in use after some events."""
    live = live.copy()
    for event in events:
        _apply_event(event, live)
    return live


def _list_holdings(live: Live) -> tuple[Holding, ...]:
    """Return bytes allocated during the recording, by role and place."""
    sums: Counter[tuple[str, Phase, str | None, RawSite | None]] = Counter()
    for block, event in live.items():
        if event is not None:
            sums[block.role, event.phase, event.module, event.site] += block.size
    largest = sums.most_common(MOST_HOLDINGS)
    return tuple(Holding(role, size, phase, path, to_site(site)) for (role, phase, path, site), size in largest)


def _list_shares(live: Live, roles: Container[str], held: int | None = None) -> tuple[PeakShare, ...]:
    """Divide bytes in use by role, module and line; with unseen bytes they add up to the allocator's figure."""
    sums: Counter[tuple[str, str | None, RawSite | None]] = Counter()
    for block, event in live.items():
        if block.role not in roles:
            continue
        module, site = block.owner, None
        if event is not None:
            module, site = event.module if module is None else module, event.site
        sums[block.role, module, site] += block.size
    missing = held - sums.total() if held is not None else 0
    if missing > 0:
        sums[UNKNOWN, None, None] = missing
    elif missing < 0:
        _shrink(sums, sorted(sums, key=lambda key: -_PLACE[key[0]]), -missing)
    return tuple(PeakShare(role, size, path, to_site(site)) for (role, path, site), size in sums.most_common() if size)


def _fit_parts(sums: dict[str, int], held: int, before: int) -> dict[str, int]:
    """Add unknown bytes to the parts: foreign if they were there before, else other."""
    parts = sums.copy()
    missing = held - sum(parts.values())
    if missing > 0:
        parts["foreign"] += min(missing, before)
        parts["other"] += max(0, missing - before)
    elif missing < 0:
        _shrink(parts, reversed(ROLES), -missing)
    return parts


def _shrink(sums: dict[_Key, int], keys: Iterable[_Key], excess: int) -> None:
    """Reduce the parts if less is in use than known blocks take, the least certain first."""
    for key in keys:
        change = min(excess, sums[key])
        sums[key] -= change
        excess -= change


def thin_points(points: list[Point]) -> list[Point]:
    """Reduce the number of points. Of each four neighbours the highest and the lowest stay, so the peak always stays."""
    while len(points) > MOST_POINTS:
        kept: list[Point] = []
        for start in range(0, len(points), 4):
            four = points[start : start + 4]
            highest, lowest = max(four, key=_held_bytes), min(four, key=_held_bytes)
            for point in four:
                if point is highest or point is lowest:
                    kept.append(point)
        points = kept
    return points


def _held_bytes(point: Point) -> int:
    return point.event.held
