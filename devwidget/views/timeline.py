"""A trace as lanes: for each device the modules that ran there, the hops between them, the faults, the phases of the step."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from devwidget.records.device import DeviceId
from devwidget.records.memory import MemoryCurve, Refusal
from devwidget.records.trace import Fault, ModuleEvent, Move, Phase, Trace
from devwidget.views.clock import last_place
from devwidget.views.hops import group_hops
from devwidget.views.placement import device_order
from devwidget.views.sums import values_once

MOST_BOXES = 20_000
"""Deeper modules than so many are left out."""
MOST_BANDS = 24
"""A loop of many steps changes its phase too often for bands to be read."""
_STEP: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class Box:
    """One module's first call.

    Attributes:
        path, class_name: which module.
        lane: where its parts are; of a module without parts, the device of its result; None for parts on several devices.
        start, stop: places in the trace where the call began and ended.
        level: nesting among the boxes of its lane, 0 outermost.
        failed: whether a call raised.
        seconds, calls: as in ModuleEvent.
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
    """A crossing.

    Attributes:
        move: its facts.
        hop: place of its line among the hops of `group_hops`.
        cross: of a healed one, the fault that it healed.
    """

    move: Move
    hop: int
    cross: Cross | None

    @property
    def at(self) -> float:
        """Place in the trace."""
        return float(self.move.number)


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
    """Draw the order of a trace on lanes; positions are places in the trace, which are the same at every run."""
    events = [event for event in trace.modules if any((event.inputs, event.outputs, event.failed))]
    chosen = _shallowest_first(events)
    forward = _find_boxes(chosen)
    boxes = _stack_boxes([*forward, *_find_gradients(trace, forward)])
    crosses = tuple(_find_crosses(trace))
    arrows = tuple(_find_arrows(trace, crosses))
    refusals = []
    for curve in trace.memory:
        for refused in curve.refused:
            refusals.append(RefusalMark(float(refused.number), curve, refused))
    used = {*values_once(boxes, "lane"), *values_once(crosses, "lane"), *values_once(refusals, "curve.device")}
    used |= {*values_once(arrows, "move.source"), *values_once(arrows, "move.target")}
    lanes = tuple(sorted(used - {None}, key=device_order))
    bands = _find_bands(trace, sorted({*values_once(boxes, "start"), *values_once((*arrows, *crosses, *refusals), "at")}))
    return Timeline(lanes, boxes, arrows, crosses, bands, tuple(refusals), len(events) - len(chosen))


def _shallowest_first(events: list[ModuleEvent]) -> list[ModuleEvent]:
    if len(events) > MOST_BOXES:
        events = sorted(events, key=lambda event: (event.path.count("."), event.number))[:MOST_BOXES]
    return sorted(events, key=lambda event: (event.number, event.path.count(".")))


def _stop_of(event: ModuleEvent) -> float:
    """Where its first call ended; a call that was never seen to end stays a point."""
    return float(max(event.stopped, event.number))


def _find_boxes(events: list[ModuleEvent]) -> list[Box]:
    """The boxes of the events, none of them on top of another yet. A module with parts is where they are."""
    parents = _find_parents(events)
    contained: dict[int, set[DeviceId]] = {}
    boxes = []
    for at in reversed(range(len(events))):  # what is inside comes after it
        event = events[at]
        result = (event.outputs or event.inputs or (DeviceId("cpu"),))[0]
        devices = contained.get(at, {result})
        boxes.append(_make_box(event, devices))
        if at in parents:
            contained.setdefault(parents[at], set()).update(devices)
    return boxes[::-1]


def _make_box(event: ModuleEvent, devices: set[DeviceId]) -> Box:
    lane = next(iter(devices)) if len(devices) == 1 else None
    start, stop = float(event.number), _stop_of(event)
    return Box(event.path, event.class_name, lane, start, stop, 0, event.failed, event.seconds, event.calls, event.replica)


def _find_gradients(trace: Trace, forward: list[Box]) -> Iterator[Box]:
    """Boxes of backward: while memory of a device was allocated for the gradients of a module, or of what it contains."""
    known = {box.path: box.class_name for box in forward if box.lane is not None}
    points = {curve.device: _backward_points(curve) for curve in trace.memory}
    numbers = sorted(number for own in points.values() for number, _ in own)
    for device, own in points.items():
        began: dict[str, int] = {}  # of the modules whose gradients are computed, from the outermost inwards
        stop = 0
        for number, module in [*own, (0, None)]:
            running = [path for path in _outer_paths(module) if path in known]
            for path in [*began]:
                if path not in running:
                    yield _gradient_box(path, known[path], device, began.pop(path), stop)
            for path in running:
                began.setdefault(path, number)
            after = bisect_right(numbers, number)
            stop = numbers[after] if after < len(numbers) else number + 1  # where any device continues


def _backward_points(curve: MemoryCurve) -> list[tuple[int, str | None]]:
    return [(point.number, point.module) for point in curve.points if point.phase == "backward"]


def _outer_paths(path: str | None) -> list[str]:
    """Return a module and its parents, outermost first, without the root; [] outside of the model."""
    if not path:
        return []
    return list(itertools.accumulate(path.split("."), "{}.{}".format))


def _gradient_box(path: str, class_name: str, lane: DeviceId, start: int, stop: int) -> Box:
    return Box(path, class_name, lane, float(start), float(stop), 0, False, 0.0, 1, -1, is_gradient=True)


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


def _find_arrows(trace: Trace, crosses: tuple[Cross, ...]) -> Iterator[Arrow]:
    hops = {number: place for place, hop in enumerate(group_hops(trace.moves)) for number in hop.numbers}
    for move in trace.moves:
        if move.source != move.target:
            yield Arrow(move, hops[move.number], _find_cross(move, crosses))


def _find_cross(move: Move, crosses: tuple[Cross, ...]) -> Cross | None:
    """The fault of a healed move: the nearest one of its module that wanted a tensor there."""
    if move.cause != "healed":
        return None
    own = [cross for cross in crosses if (cross.module, cross.lane) == (move.module, move.target)]
    return min(own, key=lambda cross: abs(cross.at - move.number), default=None)


def _find_crosses(trace: Trace) -> Iterator[Cross]:
    findings = {number: place for place, finding in enumerate(trace.findings) for number in finding.explains}
    for fault in trace.faults:
        if fault.target:
            yield _make_cross(fault, fault.target, trace, findings.get(fault.number, -1))


def _make_cross(fault: Fault, lane: DeviceId, trace: Trace, finding: int) -> Cross:
    """With its own words where no finding explains it."""
    headline = fault.error or f"`{fault.call}` failed"
    if finding >= 0:
        headline = trace.findings[finding].headline
    return Cross(float(fault.number), lane, fault.module, headline, finding)


def _find_bands(trace: Trace, shown: list[float]) -> tuple[Band, ...]:
    """The phases of the step in the order of their first events; () where they change too often to be read.

    Args:
        shown: where something is drawn, in order.
    """
    events = (trace.ops, trace.moves, trace.faults)
    starts: list[tuple[Phase, int]] = []
    for number, phase in sorted((each.number, each.phase) for own in events for each in own):
        if not starts or starts[-1][0] != phase:
            starts.append((phase, number))
    ends = [*(start for _, start in starts), last_place(trace) + 1]
    bands = []
    for (phase, start), stop in zip(starts, ends[1:], strict=True):
        if phase in _STEP:
            ran = sum(op.count for op in trace.ops if start <= op.number < stop)
            bands.append(Band(phase, start, stop, ran, bisect_left(shown, start) == bisect_left(shown, stop)))
    if len(bands) > MOST_BANDS:
        return ()
    return tuple(bands)
