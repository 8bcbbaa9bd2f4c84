"""A trace as lanes: for each device the modules that ran there, the hops between them, the faults, the phases of the step."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from devwidget.records.device import DeviceId
from devwidget.records.trace import Cause, Fault, ModuleEvent, Move, OpEvent, Phase, Trace
from devwidget.views.clock import Clock
from devwidget.views.hops import group_hops
from devwidget.views.placement import device_order

MOST_BOXES = 400
"""More boxes than this cannot be told apart on a screen; deeper modules are left out first."""
MOST_BANDS = 24
"""A loop of many steps changes its phase too often for bands to be read."""
TELL_APART = 1 / 150
"""Arrows of one kind that are nearer than this share of the width fall together, and are drawn as one."""
_STEP: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Box:
    """One module's first call, or the part of it on one device, from its first operator there to its last.

    Attributes:
        path, class_name: which module.
        lane: where its operators ran; the device of its results where none of them computed anything.
        start, stop: places in the trace where the call, or the part, began and ended.
        level: nesting among the boxes of its lane, 0 outermost.
        failed: whether a call raised.
        seconds, calls: as in ModuleEvent; the seconds of the whole call are not those of a part, which has none.
        replica: number of the DataParallel replica, -1 for the module itself.
    """

    path: str
    class_name: str
    lane: DeviceId
    start: float
    stop: float
    level: int
    failed: bool
    seconds: float
    calls: int
    replica: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """Crossings between the same devices, for the same cause, in the same module, that fall together on a screen.

    Attributes:
        at: place in the trace of the first.
        moves: all of them, the largest first.
        count, bytes: crossings, and bytes of all of them.
        hop: place of its line among the hops of `group_hops`, -1 for none.
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


@dataclass(frozen=True, slots=True)
class Cross:
    """A fault: where its tensors should have been, and the headline and the place of the finding that it led to (-1: none)."""

    at: float
    lane: DeviceId
    module: str | None
    headline: str
    finding: int = -1


@dataclass(frozen=True, slots=True)
class Band:
    """A phase of the step, from one place in the trace to another."""

    phase: Phase
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes from top to bottom, boxes for modules, arrows for moves, crosses for faults, bands for the phases.

    Attributes:
        left_out: calls of modules that have no box.
        seconds: whether positions are seconds; if not, they are places in the trace.
    """

    lanes: tuple[DeviceId, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    crosses: tuple[Cross, ...]
    bands: tuple[Band, ...] = ()
    left_out: int = 0
    seconds: bool = False


def make_timeline(trace: Trace) -> Timeline:
    """The order of a trace drawn on lanes: positions are places in the trace, which are the same at every run."""
    events = [event for event in trace.modules if event.inputs or event.outputs or event.failed]
    chosen = _shallowest_first(events)
    boxes = _stack_boxes(_find_boxes(chosen, trace.ops))
    arrows, crosses = _find_arrows(trace), _find_crosses(trace)
    used = {box.lane for box in boxes} | {cross.lane for cross in crosses}
    used |= {device for arrow in arrows for device in (arrow.source, arrow.target)}
    return Timeline(
        tuple(sorted(used, key=device_order)), boxes, arrows, crosses, _find_bands(trace), len(events) - len(chosen)
    )


def in_seconds(lanes: Timeline, clock: Clock) -> Timeline:
    """The same by time: how long things took on the host, which differs from run to run."""
    at = clock.at
    return replace(
        lanes,
        boxes=tuple(replace(box, start=at(box.start), stop=at(box.stop)) for box in lanes.boxes),
        arrows=tuple(replace(arrow, at=at(arrow.at)) for arrow in lanes.arrows),
        crosses=tuple(replace(cross, at=at(cross.at)) for cross in lanes.crosses),
        bands=tuple(replace(band, start=at(band.start), stop=at(band.stop)) for band in lanes.bands),
        seconds=True,
    )


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
    replicas = [event.number for event in events if event.replica >= 0]
    for event in events:
        inside = computed[bisect_right(places, event.number) : bisect_left(places, _stop_of(event))]
        own = [(number, lane) for number, module, lane in inside if _is_inside(module, event)]
        has_replicas = any(event.number < number < _stop_of(event) for number in replicas)
        for lane, start, stop in _whole_parts(event, own) if has_replicas or not own else _device_parts(event, own, copies):
            is_whole = (start, stop) == (event.number, _stop_of(event))
            yield Box(
                event.path, event.class_name, lane, start, stop, 0, event.failed, event.seconds if is_whole else 0.0,
                event.calls, event.replica,
            )  # fmt: skip


def _computed_on(op: OpEvent) -> DeviceId | None:
    """Where an operator read and wrote; None for copies between devices, and for what reads nothing."""
    if op.output is None:
        return op.inputs[0] if op.inputs else None
    return op.output if op.output in op.inputs else None


def _is_inside(module: str | None, event: ModuleEvent) -> bool:
    """Replicas run side by side under the same paths: nobody knows whose operator it was."""
    return event.replica < 0 and module is not None and (not event.path or f"{module}.".startswith(f"{event.path}."))


def _whole_parts(event: ModuleEvent, ran: list[tuple[int, DeviceId]]) -> Iterator[tuple[DeviceId, float, float]]:
    """The devices of a call, each for all of its time, as replicas run; that of its results where no operator ran."""
    results = (event.outputs or event.inputs or (DeviceId("cpu"),))[:1]
    yield from ((lane, float(event.number), _stop_of(event)) for lane in dict.fromkeys(lane for _, lane in ran) or results)


def _device_parts(
    event: ModuleEvent, ran: list[tuple[int, DeviceId]], copies: list[int]
) -> Iterator[tuple[DeviceId, float, float]]:
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
    open_boxes: dict[DeviceId, list[float]] = {}
    for box in sorted(boxes, key=lambda box: box.start):
        running = open_boxes.setdefault(box.lane, [])
        while running and running[-1] <= box.start:
            running.pop()
        stacked.append(replace(box, level=len(running)))
        running.append(box.stop)
    return tuple(stacked)


def _find_arrows(trace: Trace) -> tuple[Arrow, ...]:
    near = (_last_place(trace) + 1) * TELL_APART
    groups: dict[object, list[Move]] = {}
    for move in trace.moves:
        if move.source != move.target:
            key = (move.source, move.target, move.cause, move.module, int(move.number / near))
            groups.setdefault(key, []).append(move)
    hops = {number: place for place, hop in enumerate(group_hops(trace.moves)) for number in hop.numbers}
    return tuple(_make_arrow(moves, hops) for moves in groups.values())


def _make_arrow(moves: list[Move], hops: dict[int, int]) -> Arrow:
    first = moves[0]
    largest = tuple(sorted(moves, key=lambda move: (-move.bytes * move.count, move.number)))
    count, size = sum(move.count for move in moves), sum(move.bytes * move.count for move in moves)
    hop = hops[first.number]
    return Arrow(first.source, first.target, first.cause, first.module, float(first.number), largest, count, size, hop)


def _find_crosses(trace: Trace) -> tuple[Cross, ...]:
    findings = {number: place for place, finding in enumerate(trace.findings) for number in finding.explains}
    return tuple(
        _make_cross(fault, fault.target, trace, findings.get(fault.number, -1)) for fault in trace.faults if fault.target
    )


def _make_cross(fault: Fault, lane: DeviceId, trace: Trace, finding: int) -> Cross:
    headline = trace.findings[finding].headline if finding >= 0 else _fault_words(fault)
    return Cross(float(fault.number), lane, fault.module, headline, finding)


def _fault_words(fault: Fault) -> str:
    """A fault in its own words, where no finding tells of it."""
    return fault.error or f"`{fault.call}` failed"


def _find_bands(trace: Trace) -> tuple[Band, ...]:
    """The phases of the step in the order of their first events; () where they change too often to be read."""
    seen = sorted((each.number, each.phase) for events in (trace.ops, trace.moves, trace.faults) for each in events)
    runs = [(phase, next(run)[0]) for phase, run in itertools.groupby(seen, key=lambda each: each[1])]
    ends = [*(start for _, start in runs), _last_place(trace) + 1][1:]
    bands = tuple(Band(phase, start, stop) for (phase, start), stop in zip(runs, ends, strict=True) if phase in _STEP)
    return bands if len(bands) <= MOST_BANDS else ()


def _last_place(trace: Trace) -> int:
    """The last place in the trace."""
    ends = [max(event.number, event.stopped) for event in trace.modules]
    return max([0, *ends, *(each.number for events in (trace.ops, trace.moves, trace.faults) for each in events)])
