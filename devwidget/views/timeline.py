"""A trace as lanes: for each device the modules that ran there, the hops between them, the faults, the phases of the step."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from devwidget.records.device import DeviceId
from devwidget.records.memory import MemoryCurve, Refusal
from devwidget.records.trace import Cause, Fault, ModuleEvent, Move, OpEvent, Phase, Trace
from devwidget.views.hops import group_hops
from devwidget.views.placement import device_order
from devwidget.views.sums import total

MOST_BOXES = 20_000
"""Deeper modules than so many are left out."""
MOST_BANDS = 24
"""A loop of many steps changes its phase too often for bands to be read."""
TELL_APART = 1 / 20_000
"""Arrows of one kind that are nearer than this share of the trace are one, however near one looks."""
_Part = tuple[DeviceId | None, float, float]
_STEP: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Box:
    """One module's first call, or the part of one without submodules on one device, from its first operator there to its last.

    Attributes:
        path, class_name: which module.
        lane: where its operators ran; the device of its results where none of them computed anything; None for a container
            whose parts ran on several devices.
        start, stop: places in the trace where the call, or the part, began and ended.
        level: nesting among the boxes of its lane, 0 outermost.
        failed: whether a call raised.
        seconds, calls: as in ModuleEvent; the seconds of the whole call are not those of a part, which has none.
        replica: number of the DataParallel replica, -1 for the module itself.
        is_gradient: whether it is backward that ran then, for this module.
    """

    path: str
    class_name: str
    lane: DeviceId | None
    start: float
    stop: float
    level: int
    failed: bool
    seconds: float
    calls: int
    replica: int
    is_gradient: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """Crossings between the same devices, for the same cause, in the same module, that fall together on a screen.

    Attributes:
        at: place in the trace of the first.
        moves: all of them, the largest first.
        count, bytes: crossings, and bytes of all of them.
        hop: place of its line among the hops of `group_hops`, -1 for none.
        cross: of a healed one, place among the crosses of the fault that it healed; -1.
    """

    source: DeviceId
    target: DeviceId
    cause: Cause
    module: str | None
    at: float
    moves: tuple[Move, ...]
    count: int
    bytes: int
    hop: int = -1
    cross: int = -1


@dataclass(frozen=True, slots=True)
class Cross:
    """A fault: where its tensors should have been, and the headline and the place of the finding that it led to (-1: none)."""

    at: float
    lane: DeviceId
    module: str | None
    headline: str
    finding: int = -1


@dataclass(frozen=True, slots=True)
class RefusalMark:
    """An allocation that did not fit."""

    at: float
    curve: MemoryCurve
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Band:
    """A phase of the step, from one place in the trace to another: how many operators ran, whether nothing is drawn in it."""

    phase: Phase
    start: float
    stop: float
    operators: int = 0
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes from top to bottom, boxes for modules, arrows for moves, crosses for faults, bands for the phases.

    Attributes:
        refusals: allocations that did not fit.
        left_out: calls of modules that have no box.
    """

    lanes: tuple[DeviceId, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    crosses: tuple[Cross, ...]
    bands: tuple[Band, ...] = ()
    refusals: tuple[RefusalMark, ...] = ()
    left_out: int = 0


def make_timeline(trace: Trace) -> Timeline:
    """The order of a trace drawn on lanes: positions are places in the trace, which are the same at every run."""
    events = [event for event in trace.modules if event.inputs or event.outputs or event.failed]
    chosen = _shallowest_first(events)
    forward = list(_find_boxes(chosen, trace.ops))
    boxes = _stack_boxes([*forward, *_find_gradients(trace, forward)])
    crosses, refusals = _find_crosses(trace), _find_refusals(trace)
    arrows = tuple(_join_cross(arrow, crosses) for arrow in _find_arrows(trace))
    used = {box.lane for box in boxes if box.lane} | {cross.lane for cross in crosses}
    used |= {device for arrow in arrows for device in (arrow.source, arrow.target)}
    used |= {refused.curve.device for refused in refusals}
    lanes = tuple(sorted(used, key=device_order))
    shown = [box.start for box in boxes] + [mark.at for marks in (arrows, crosses, refusals) for mark in marks]
    bands = _find_bands(trace, sorted(shown))
    return Timeline(lanes, boxes, arrows, crosses, bands, refusals, len(events) - len(chosen))


def _shallowest_first(events: list[ModuleEvent]) -> list[ModuleEvent]:
    if len(events) > MOST_BOXES:
        events = sorted(events, key=lambda event: (event.path.count("."), event.number))[:MOST_BOXES]
    return sorted(events, key=lambda event: (event.number, event.path.count(".")))


def _stop_of(event: ModuleEvent) -> float:
    """Where its first call ended; a call that was never seen to end stays a point."""
    return float(max(event.stopped, event.number))


def _find_boxes(events: list[ModuleEvent], ops: Iterable[OpEvent]) -> Iterator[Box]:
    """The boxes of the events, none of them on top of another yet."""
    ops = sorted(ops, key=lambda op: op.number)
    computed = [(op.number, op.module, lane) for op in ops if (lane := _computed_on(op))]
    copies = [op.number for op in ops if op.inputs and not _computed_on(op)]
    places = [number for number, _, _ in computed]
    parents = _find_parents(events)
    containers = set(parents.values())
    homes: dict[int, set[DeviceId]] = {}  # of each container, the devices of what it contains
    parts: list[list[_Part]] = []
    for at in reversed(range(len(events))):  # what is inside comes after it
        event = events[at]
        inside = computed[bisect_right(places, event.number) : bisect_left(places, _stop_of(event))]
        if at in containers:
            own = {
                lane for _, module, lane in inside if _is_inside(module, event) and module == event.path and lane.is_accelerator
            }
            found, parted = homes[at] | own, [(_only_one(homes[at] | own), float(event.number), _stop_of(event))]
        else:
            ran = [(number, lane) for number, module, lane in inside if _is_inside(module, event)]
            if ran:
                parted = list(_device_parts(event, ran, copies))
            else:
                parted = [_whole_part(event)]
            if ran:
                found = {ran[-1][1]}
            else:
                found = {lane for lane, _, _ in parted if lane}
        parts.append(parted)
        if at in parents:
            homes.setdefault(parents[at], set()).update(found)
    for event, parted in zip(events, reversed(parts), strict=True):
        for lane, start, stop in parted:
            is_whole = (start, stop) == (event.number, _stop_of(event))
            yield Box(
                event.path, event.class_name, lane, start, stop, 0, event.failed, event.seconds if is_whole else 0.0,
                event.calls, event.replica,
            )  # fmt: skip


def _find_gradients(trace: Trace, forward: list[Box]) -> Iterator[Box]:
    """Boxes of backward: while memory of a device was allocated for the gradients of a module, or of what it contains."""
    known = {box.path: box.class_name for box in forward if box.lane is not None}
    points = [[point for point in curve.points if point.phase == "backward"] for curve in trace.memory]
    numbers = sorted(point.number for own in points for point in own)
    for curve, own in zip(trace.memory, points, strict=True):
        began: dict[str, int] = {}  # of the modules whose gradients are computed, from the outermost inwards
        stop = 0
        for number, module in [*((point.number, point.module) for point in own), (0, None)]:
            running = [path for path in _outer_paths(module) if path in known]
            for path in [path for path in began if path not in running]:
                yield _gradient_box(path, known[path], curve.device, began.pop(path), stop)
            began |= {path: number for path in running if path not in began}
            stop = next(iter(numbers[bisect_right(numbers, number) :][:1]), number + 1)  # where any device goes on


def _outer_paths(path: str | None) -> list[str]:
    """A module and what it is in, from the outermost inwards, without the root; () outside the model."""
    names = path.split(".") if path else []
    return [".".join(names[: end + 1]) for end in range(len(names))]


def _gradient_box(path: str, class_name: str, lane: DeviceId, start: int, stop: int) -> Box:
    return Box(path, class_name, lane, float(start), float(stop), 0, False, 0.0, 1, -1, is_gradient=True)


def _computed_on(op: OpEvent) -> DeviceId | None:
    """Where an operator read and wrote; None for copies between devices, and for what reads nothing."""
    if op.output is None:
        if op.inputs:
            return op.inputs[0]
        return None
    if op.output in op.inputs:
        return op.output
    return None


def _is_inside(module: str | None, event: ModuleEvent) -> bool:
    """Replicas run side by side under the same paths: nobody knows whose operator it was."""
    return event.replica < 0 and module is not None and (not event.path or f"{module}.".startswith(f"{event.path}."))


def _find_parents(events: list[ModuleEvent]) -> dict[int, int]:
    """For each call that runs inside another one of the list, the place of the nearest."""
    known = {(event.path, event.replica): at for at, event in enumerate(events)}
    parents = {}
    for at, event in enumerate(events):
        path = event.path
        while path:
            path = path.rpartition(".")[0]
            outer = known.get((path, event.replica), known.get((path, -1)))
            if outer is not None and events[outer].number <= event.number < _stop_of(events[outer]):
                parents[at] = outer
                break
    return parents


def _only_one(lanes: set[DeviceId]) -> DeviceId | None:
    if len(lanes) == 1:
        return next(iter(lanes))
    return None


def _whole_part(event: ModuleEvent) -> _Part:
    """A call in which no operator was seen: that of a replica, too, which run side by side."""
    return (event.outputs or event.inputs or (DeviceId("cpu"),))[0], float(event.number), _stop_of(event)


def _device_parts(event: ModuleEvent, ran: list[tuple[int, DeviceId]], copies: list[int]) -> Iterator[_Part]:
    """The devices of a call, each from where another one paused to where its data is copied on."""
    for lane in dict.fromkeys(lane for _, lane in ran):
        own = [at for at, (_, device) in enumerate(ran) if device == lane]
        first, last = own[0], own[-1]
        start = ran[first - 1][0] + 1 if first else event.number
        yield (
            lane,
            float(start),
            _next_place(ran[last][0], ran[last + 1][0], copies) if last + 1 < len(ran) else _stop_of(event),
        )


def _next_place(last: int, following: int, copies: list[int]) -> float:
    """The first copy after a place, if it comes before the following operator."""
    after = bisect_right(copies, last)
    return float(min(copies[after], following) if after < len(copies) else following)


def _stack_boxes(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """The boxes of each lane, those that run inside another one level deeper."""
    stacked: list[Box] = []
    open_boxes: dict[DeviceId | None, list[float]] = {}
    for box in sorted(boxes, key=lambda box: (box.start, -box.stop)):
        running = open_boxes.setdefault(box.lane, [])
        while running and running[-1] <= box.start:
            running.pop()
        stacked.append(replace(box, level=len(running)))
        running.append(box.stop)
    return tuple(stacked)


def _find_arrows(trace: Trace) -> tuple[Arrow, ...]:
    near = max(1.0, (_last_place(trace) + 1) * TELL_APART)
    groups: dict[object, list[Move]] = {}
    for move in trace.moves:
        if move.source != move.target:
            key = (move.source, move.target, move.cause, move.module, int(move.number / near))
            groups.setdefault(key, []).append(move)
    hops = {number: place for place, hop in enumerate(group_hops(trace.moves)) for number in hop.numbers}
    return tuple(_make_arrow(moves, hops) for moves in groups.values())


def _make_arrow(moves: list[Move], hops: dict[int, int]) -> Arrow:
    first = moves[0]
    largest = tuple(sorted(moves, key=lambda move: (-move.all_bytes, move.number)))
    count, size = total(moves, "count"), total(moves, "all_bytes")
    hop = hops[first.number]
    return Arrow(first.source, first.target, first.cause, first.module, float(first.number), largest, count, size, hop)


def _join_cross(arrow: Arrow, crosses: tuple[Cross, ...]) -> Arrow:
    """A healed move with its fault: the nearest one of its module that wanted a tensor there."""
    if arrow.cause != "healed":
        return arrow
    own = [at for at, cross in enumerate(crosses) if (cross.module, cross.lane) == (arrow.module, arrow.target)]
    return replace(arrow, cross=min(own, key=lambda at: abs(crosses[at].at - arrow.at), default=-1))


def _find_refusals(trace: Trace) -> tuple[RefusalMark, ...]:
    return tuple(RefusalMark(float(each.number), curve, each) for curve in trace.memory for each in curve.refused)


def _find_crosses(trace: Trace) -> tuple[Cross, ...]:
    findings = {number: place for place, finding in enumerate(trace.findings) for number in finding.explains}
    return tuple(
        _make_cross(fault, fault.target, trace, findings.get(fault.number, -1)) for fault in trace.faults if fault.target
    )


def _make_cross(fault: Fault, lane: DeviceId, trace: Trace, finding: int) -> Cross:
    """With its own words where no finding tells of it."""
    headline = trace.findings[finding].headline if finding >= 0 else fault.error or f"`{fault.call}` failed"
    return Cross(float(fault.number), lane, fault.module, headline, finding)


def _find_bands(trace: Trace, shown: list[float]) -> tuple[Band, ...]:
    """The phases of the step in the order of their first events; () where they change too often to be read.

    Args:
        shown: where something is drawn, in order.
    """
    seen = sorted((each.number, each.phase) for events in (trace.ops, trace.moves, trace.faults) for each in events)
    runs = [(phase, next(run)[0]) for phase, run in itertools.groupby(seen, key=lambda each: each[1])]
    ends = [*(start for _, start in runs), _last_place(trace) + 1][1:]
    spans = [(phase, start, stop) for (phase, start), stop in zip(runs, ends, strict=True) if phase in _STEP]
    if len(spans) > MOST_BANDS:
        return ()
    ran = [sum(op.count for op in trace.ops if start <= op.number < stop) for _, start, stop in spans]
    empty = [bisect_left(shown, start) == bisect_left(shown, stop) for _, start, stop in spans]
    return tuple(Band(*span, *more) for span, more in zip(spans, zip(ran, empty, strict=True), strict=True))


def _last_place(trace: Trace) -> int:
    """The last place in the trace."""
    ends = [max(event.number, event.stopped) for event in trace.modules]
    return max([0, *ends, *(each.number for events in (trace.ops, trace.moves, trace.faults) for each in events)])
