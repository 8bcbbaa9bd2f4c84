"""Curves: allocations of a recording, folded to points once it is known what each of them was for."""

from __future__ import annotations

import bisect
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.recording.module_tracker import ThreadPlace
from devwidget.capture.recording.parallel_calls import WrapperCall, find_call
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.records.memory import MOST_HOLDINGS, ROLES, UNKNOWN, Holding, MemoryPoint, PeakShare, Refusal
from devwidget.records.site import Phase, Site

MOST_SPANS = 50_000
MOST_REPLICAS = 256
_LEAF = 1 << 63
"""Nodes that accumulate gradients have the highest number that there is."""


class BackwardModules:
    """Which module ran when a node was made. Each thread numbers its own nodes, and each replica runs in a new one."""

    def __init__(self) -> None:
        self._spans: dict[tuple[WrapperCall | None, int], tuple[list[int], list[str | None]]] = {}

    def enter_module(self, module: str | None, call: WrapperCall | None = None, replica: int = -1) -> None:
        """From here on `module` runs in this thread, None outside the model; in a replica of a call, if one is given."""
        of = (call, replica) if call is not None else (None, threading.get_ident())
        if of not in self._spans and call is not None:
            self._forget_oldest_replica()
        starts, modules = self._spans.setdefault(of, ([], []))
        if len(starts) > MOST_SPANS:
            del starts[: MOST_SPANS // 2], modules[: MOST_SPANS // 2]
        starts.append(torch_internals.next_autograd_number())
        modules.append(module)

    def _forget_oldest_replica(self) -> None:
        """Of a loop whose calls went back long ago nobody asks."""
        replicas = [of for of in tuple(self._spans) if of[0] is not None]
        if len(replicas) >= MOST_REPLICAS:
            self._spans.pop(replicas[0], None)

    def find_module(self, number: int | None) -> str | None:
        """The module whose node runs now; None if there is none, or if threads that count alike leave a doubt.

        Args:
            number: of that node, if it is known.
        """
        node: Any = None
        if number is None:
            node = torch_internals.current_autograd_node()  # None outside backward
            number = node._sequence_nr() if node is not None else _LEAF
        if number >= _LEAF:
            return None
        threads = tuple(self._spans.items())
        if len(threads) == 1:  # as nearly always
            return _module_at(number, *threads[0][1])
        node = node or torch_internals.current_autograd_node()
        made_in = find_call(node) if node is not None and any(call is not None for (call, _), _ in threads) else None
        found = {_module_at(number, *spans) for (call, _), spans in threads if call is made_in}
        if len(found) == 1:
            return found.pop()
        return None


def _module_at(number: int, starts: list[int], modules: list[str | None]) -> str | None:
    place = bisect.bisect_right(starts, number) - 1
    if place >= 0:
        return modules[place]
    return None


MOST_POINTS = 400
"""Points kept of one device; a step of GPT-2 makes some thousand allocations, and a screen has some thousand columns."""
MOST_QUEUED = 250_000
"""Of 50,000 allocations with their ends, kept until they are folded. Those of a longer step are before all is known of them."""
MOST_SHARES = 5000
"""Kept of a peak, apart from what is told together."""
_COPIES = {"scatter": "inputs", "replicate": "parameters", "gather": "gathered"}
"""What DataParallel's copies are for."""
_PLACE = {role: place for place, role in enumerate(ROLES)}


class Allocation(NamedTuple):
    """When and where something was allocated."""

    number: int
    phase: Phase
    module: str | None
    site: RawSite | None


class _Point(NamedTuple):
    allocation: Allocation
    allocated: int
    parts: tuple[int, ...]


_MemoryEvent = tuple[MemoryBlock | None, int, int, Allocation | None]
"""A block, its device, bytes held, and where: a block taken (the bytes are those with it), a block freed (-1 of them), or,
without a block, a look at a device."""
_Where = tuple[Phase, str | None, RawSite | None]
_Share = tuple[str, str | None, RawSite | None]
"""What bytes were for, whose module they are, and the line that allocated them."""


class Curves:
    """Listens to allocations, in all threads.

    Args:
        state: of the recording.
        backward: tells whose gradients are computed.
        exact: the blocks are all that is allocated; if not, the difference to the allocator's figure counts as other.

    Attributes:
        calling: the user's line that runs backward, which has threads of its own on CUDA.
        freed: told of a block that is not in use any more; no method, for whatever dies comes by here.
    """

    def __init__(self, state: RecordingState, backward: BackwardModules, *, exact: bool) -> None:
        self._exact = exact
        self.calling: RawSite | None = None
        self._tracker, self._log, self._backward = state.tracker, state.log, backward
        self._lock = threading.RLock()
        # Flat: a tuple for each event would be one more object that the garbage collector comes for, and walks through. Four
        # entries say that a block was taken, which are put in at once, and the block alone that it was freed.
        self._queue: deque[Any] = deque()
        self.freed: Callable[[MemoryBlock], None] = self._queue.append
        self._wheres: dict[_Where, _Where] = {}
        self._counted: dict[MemoryBlock, tuple[int, Allocation | None]] = {}
        self._sums: dict[int, list[int]] = {}
        self._points: dict[int, list[_Point]] = {}
        self._peaks: dict[int, int] = {}
        self._holdings: dict[int, dict[tuple[Any, ...], int]] = {}
        self._shares: dict[int, dict[_Share, int]] = {}
        self._kept: dict[int, dict[_Share, int]] = {}
        self._most_kept: dict[int, int] = {}
        self._refused: dict[int, list[tuple[_MemoryEvent, int]]] = {}
        self._live_then: dict[_MemoryEvent, tuple[_Point, dict[tuple[Any, ...], int]]] = {}
        self._sites: dict[RawSite | None, Site | None] = {}
        self._before: dict[int, int] = {}

    # -- what the source tells

    def begin(self, blocks: Collection[MemoryBlock]) -> None:
        """These blocks were there before the recording."""
        with self._lock:
            for block in blocks:
                # Until it is found to be the model's; an earlier recording may have said so of another.
                block.owner, block.role = None, "foreign"
            self._queue.extendleft(entry for block in blocks for entry in (0, 0, block, None))

    def taken(self, block: MemoryBlock, held: int) -> None:
        """A block is in use from now on."""
        here = self._tracker.threads.place
        where = self._find_where(here)
        block.inside = bool(here.stack)
        if where[0] != "backward":  # where gradients are scattered
            block.role = _COPIES.get(here.cause, block.role)
        self._queue.extend((where, block, held, self._log.number()))
        if len(self._queue) > MOST_QUEUED:
            self.fold_events()

    def refused(self, index: int, size: int, held: int) -> None:
        """An allocation did not fit."""
        where, number = self._find_where(self._tracker.here), self._log.number()
        self._refused.setdefault(index, []).append(((None, index, held, Allocation(number, *where)), size))
        self._queue.extend((where, index, held, number))

    def mark(self, index: int, held: int) -> None:
        """A look at a device, where nothing needs to be allocated: the end of a phase."""
        phase, module, _ = self._find_where(self._tracker.here)
        self._queue.extend(((phase, module, None), index, held, self._log.number()))  # the look is ours

    def _find_where(self, here: ThreadPlace) -> _Where:
        """Phase, module and line of what is allocated now: one tuple for each."""
        tracker = self._tracker
        phase: Phase = tracker.forced or ("forward" if here.stack else tracker.phase)
        module, site = here.path, here.operator_site or tracker.find_site(sys._getframe(2))
        if phase == "backward" and module is None:
            module, site = self._backward.find_module(here.running_node if here.operator_site else None), site or self.calling
        where = phase, module, site
        return self._wheres.setdefault(where, where)

    # -- folding

    def fold_events(self) -> None:
        """Make points of the events so far, with what is known of their blocks by now."""
        with uninterrupted(), self._lock:  # what is taken off the queue is counted
            events = list(_read_events([self._queue.popleft() for _ in range(len(self._queue))]))
            for block, (place, allocation) in self._counted.items():
                now = _PLACE[block.role]
                if now != place:
                    self._sums[block.index][place] -= block.size
                    self._sums[block.index][now] += block.size
                    self._counted[block] = now, allocation
            highest: dict[int, _MemoryEvent] = {}
            for event in events:
                _, device, held, allocation = event
                if allocation and held > max(self._peaks.get(device, -1), _held_bytes(highest.get(device))):
                    highest[device] = event
            fullest = self._find_fullest(events)
            refused = {event for refusals in self._refused.values() for event, _ in refusals}
            for event in events:
                self._count_event(event)
                _, device, held, _ = event
                if refused and event in refused:  # its hash is that of all that it holds
                    self._live_then[event] = self._points[device][-1], self._held_by(device)
                if event is highest.get(device):
                    self._peaks[device], self._holdings[device] = held, self._held_by(device)
                    self._shares[device] = self._share_out(device, held)
                if event is fullest.get(device):
                    self._kept[device] = self._sum_shares(device, {_PLACE["activations"]})
            self._points = {index: thin_points(points) for index, points in self._points.items()}

    def _count_event(self, event: _MemoryEvent) -> None:
        block, device, held, allocation = event
        parts = self._sums.setdefault(device, [0] * len(ROLES))
        if block is not None and held >= 0:
            place = _PLACE[block.role]
            self._counted[block] = place, allocation
            parts[place] += block.size
        elif block is not None and block in self._counted:
            parts[self._counted.pop(block)[0]] -= block.size
        if allocation is not None:
            before = self._before.setdefault(device, 0 if self._exact else max(0, held - sum(parts)))
            if self._exact:
                whole = tuple(parts)
            else:
                whole = _made_up(parts, held, before)
            self._points.setdefault(device, []).append(_Point(allocation, held, whole))

    def _held_by(self, index: int) -> dict[tuple[Any, ...], int]:
        """Bytes in use by role, phase, module and line."""
        sums: dict[tuple[Any, ...], int] = {}
        for block, (place, allocation) in self._counted.items():
            if block.index == index and allocation is not None:
                key = (ROLES[place], *allocation[1:])
                sums[key] = sums.get(key, 0) + block.size
        return sums

    def _find_fullest(self, events: list[_MemoryEvent]) -> dict[int, _MemoryEvent]:
        """Of each device that which leaves it with more activations than there were before."""
        place, fullest = _PLACE["activations"], dict[int, _MemoryEvent]()
        now = {device: parts[place] for device, parts in self._sums.items()}
        for event in events:
            block, device, held, _ = event
            if block is None or _PLACE[block.role] != place:
                continue
            now[device] = now.get(device, 0) + (block.size if held >= 0 else -block.size)
            if now[device] > self._most_kept.get(device, 0):
                self._most_kept[device], fullest[device] = now[device], event
        return fullest

    def _share_out(self, index: int, held: int) -> dict[_Share, int]:
        """All bytes in use by role, module and line, and what nobody has seen; as many as the allocator says."""
        sums = self._sum_shares(index, range(len(ROLES)))
        missing = held - sum(sums.values())
        if missing > 0:
            sums[UNKNOWN, None, None] = missing
        for key in sorted(sums, key=lambda key: -_PLACE.get(key[0], 0)) if missing < 0 else ():  # the least certain shrink
            change = max(missing, -sums[key])
            sums[key], missing = sums[key] + change, missing - change
        return sums

    def _sum_shares(self, index: int, places: Container[int]) -> dict[_Share, int]:
        sums: dict[_Share, int] = {}
        for block, (place, allocation) in self._counted.items():
            if block.index == index and place in places:
                module = block.owner if block.owner is not None or allocation is None else allocation.module
                key = ROLES[place], module, allocation.site if allocation is not None else None
                sums[key] = sums.get(key, 0) + block.size
        return sums

    # -- records

    def list_in_use(self) -> Collection[MemoryBlock]:
        """The blocks that are in use now; their roles may change yet, so nothing is folded."""
        with self._lock:
            living = dict.fromkeys(self._counted)
            for block, _, held, _ in _read_events(self._queue.copy()):
                if block is not None and held >= 0:
                    living[block] = None
                elif block is not None:
                    living.pop(block, None)
            return living

    def list_points(self, index: int) -> tuple[MemoryPoint, ...]:
        """The curve of one device."""
        return tuple(self._record_point(point) for point in self._points.get(index, ()))

    def list_holdings(self, index: int) -> tuple[Holding, ...]:
        """What lived at the peak of one device."""
        return self._largest_holdings(self._holdings.get(index, {}))

    def _largest_holdings(self, held: dict[tuple[Any, ...], int]) -> tuple[Holding, ...]:
        largest = sorted(held.items(), key=lambda item: -item[1])[:MOST_HOLDINGS]
        return tuple(Holding(role, size, phase, path, self._readable_site(site)) for (role, phase, path, site), size in largest)

    def list_shares(self, index: int) -> tuple[PeakShare, ...]:
        """All that lived at the peak of one device."""
        return self._record_shares(self._shares.get(index, {}))

    def list_kept(self, index: int) -> tuple[PeakShare, ...]:
        """The activations of one device when there were most of them."""
        return self._record_shares(self._kept.get(index, {}))

    def _record_shares(self, shares: dict[_Share, int]) -> tuple[PeakShare, ...]:
        """Of very many lines those of the fewest bytes are told together, by role."""
        found = sorted(((size, key) for key, size in shares.items() if size), key=lambda each: -each[0])
        rest: dict[str, int] = {}
        for size, (role, _, _) in found[MOST_SHARES:]:
            rest[role] = rest.get(role, 0) + size
        named = [PeakShare(role, size, module, self._readable_site(site)) for size, (role, module, site) in found[:MOST_SHARES]]
        return (*named, *(PeakShare(role, size, None, None) for role, size in rest.items()))

    def list_living(self, index: int) -> dict[MemoryBlock, Holding]:
        """What was allocated on one device during the recording and is in use now."""
        self.fold_events()
        return {
            block: Holding(ROLES[place], block.size, allocation.phase, allocation.module, self._readable_site(allocation.site))
            for block, (place, allocation) in self._counted.items()
            if allocation is not None and block.index == index
        }

    def list_refusals(self, index: int) -> tuple[Refusal, ...]:
        """What did not fit on one device."""
        return tuple(self._make_refusal(event, size) for event, size in self._refused.get(index, ()))

    def _make_refusal(self, event: _MemoryEvent, size: int) -> Refusal:
        point, held = self._live_then[event]
        here = point.allocation
        where = here.phase, here.module, self._readable_site(here.site)
        return Refusal(here.number, size, event[2], *where, self._record_point(point), self._largest_holdings(held))

    def _record_point(self, point: _Point) -> MemoryPoint:
        allocation, parts = point.allocation, dict(zip(ROLES, point.parts, strict=True))
        return MemoryPoint(
            allocation.number,
            allocation.phase,
            allocation.module,
            self._readable_site(allocation.site),
            point.allocated,
            **parts,
        )

    def _readable_site(self, raw: RawSite | None) -> Site | None:
        """The readable form, looked up once for all points of a line."""
        if raw not in self._sites:
            self._sites[raw] = to_site(raw)
        return self._sites[raw]


def _read_events(queue: Iterable[Any]) -> Iterator[_MemoryEvent]:
    """The events of a queue, of which nobody else takes or puts in any meanwhile."""
    entries = iter(queue)
    for first in entries:
        if isinstance(first, MemoryBlock):
            yield first, first.index, -1, None
            continue
        which, held, number = next(entries), next(entries), next(entries)
        block, index = (which, which.index) if isinstance(which, MemoryBlock) else (None, which)
        yield block, index, held, Allocation(number, *first) if first is not None else None


def _made_up(parts: list[int], held: int, before: int) -> tuple[int, ...]:
    """The parts with what nobody knows of: foreign, as far as it was there before, and the rest other.

    If less is in use than known blocks take, the least certain shrink.
    """
    whole, missing = list(parts), held - sum(parts)
    if missing > 0:
        whole[_PLACE["foreign"]] += min(missing, before)
        missing -= min(missing, before)
    for place in reversed(range(len(whole))) if missing < 0 else (_PLACE["other"],):
        change = max(missing, -whole[place])
        whole[place], missing = whole[place] + change, missing - change
    return tuple(whole)


def thin_points(points: list[_Point]) -> list[_Point]:
    """At most so many points: of each four neighbours the highest and the lowest stay, so the peak always does."""
    while len(points) > MOST_POINTS:
        kept: list[_Point] = []
        for start in range(0, len(points), 4):
            four = points[start : start + 4]
            highest, lowest = max(four, key=_allocated_bytes), min(four, key=_allocated_bytes)
            kept += [point for point in four if point is highest or point is lowest]
        points = kept
    return points


def _held_bytes(event: _MemoryEvent | None) -> int:
    if event is None:
        return -1
    return event[2]


def _allocated_bytes(point: _Point) -> int:
    return point.allocated
