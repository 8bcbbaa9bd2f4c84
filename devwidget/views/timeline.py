"""A trace as lanes: for each device the modules that ran there, the hops between them, the faults."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.trace import ModuleEvent, Move, Trace
from devwidget.views.placement import device_order

MOST_BOXES = 400
"""More boxes than this cannot be told apart on a screen; deeper modules are left out first."""


@dataclass(frozen=True, slots=True)
class Box:
    """One module's first call.

    Attributes:
        path, class_name: which module.
        lane: device of its results.
        start, stop: places in the trace.
        level: nesting among the boxes of its lane, 0 outermost.
        failed: whether a call raised.
        seconds, calls: as in ModuleEvent.
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
class Timeline:
    """Lanes from top to bottom, boxes, moves as arrows, faults as `(position, lane, module)`."""

    lanes: tuple[DeviceId, ...]
    boxes: tuple[Box, ...]
    moves: tuple[Move, ...]
    faults: tuple[tuple[float, DeviceId, str | None], ...]
    left_out: int = 0


def timeline(trace: Trace) -> Timeline:
    """The order of a trace drawn on lanes; positions are numbers of events, because times differ from run to run."""
    events = [event for event in trace.modules if event.inputs or event.outputs or event.failed]
    chosen = _shallowest(events)
    stops = _stops(trace, chosen)
    boxes = tuple(_box(event, stop, level) for event, stop, level in zip(chosen, stops, _levels(chosen, stops), strict=True))
    moves = tuple(move for move in trace.moves if move.source != move.target)
    used = {box.lane for box in boxes} | {move.source for move in moves} | {move.target for move in moves}
    faults = tuple(
        (_at_least(boxes, fault.number, fault.module), fault.target, fault.module)
        for fault in trace.faults
        if fault.target is not None
    )
    lanes = tuple(sorted(used | {lane for _, lane, _ in faults}, key=device_order))
    return Timeline(lanes, boxes, moves, faults, len(events) - len(chosen))


def _at_least(boxes: tuple[Box, ...], number: int, module: str | None) -> float:
    """A fault's place: inside the box of its module, whatever counted it."""
    inside = next((box for box in boxes if box.path == module), None)
    return number if inside is None or inside.start <= number <= inside.stop else inside.start + 0.5


def _shallowest(events: list[ModuleEvent]) -> list[ModuleEvent]:
    if len(events) > MOST_BOXES:
        events = sorted(events, key=lambda event: (event.path.count("."), event.number))[:MOST_BOXES]
    return sorted(events, key=lambda event: (event.number, event.path.count(".")))


def _stops(trace: Trace, events: list[ModuleEvent]) -> list[float]:
    """A box ends where the next event that is neither inside it nor its replica begins."""
    last = max([0, *(e.number for e in trace.modules), *(m.number for m in trace.moves), *(o.number for o in trace.ops)]) + 1.0
    return [
        next((float(later.number) for later in events[place + 1 :] if not _inside(later, event)), last)
        for place, event in enumerate(events)
    ]


def _inside(inner: ModuleEvent, outer: ModuleEvent) -> bool:
    return outer.path == "" or inner.path.startswith(f"{outer.path}.") or inner.replica != outer.replica


def _levels(events: list[ModuleEvent], stops: list[float]) -> list[int]:
    levels: list[int] = []
    open_boxes: dict[DeviceId, list[float]] = {}
    for event, stop in zip(events, stops, strict=True):
        running = open_boxes.setdefault(_lane(event), [])
        while running and running[-1] <= event.number:
            running.pop()
        levels.append(len(running))
        running.append(stop)
    return levels


def _lane(event: ModuleEvent) -> DeviceId:
    return (event.outputs or event.inputs or (DeviceId("cpu"),))[0]


def _box(event: ModuleEvent, stop: float, level: int) -> Box:
    return Box(
        event.path, event.class_name, _lane(event), float(event.number), stop, level,
        event.failed, event.seconds, event.calls, event.replica,
    )  # fmt: skip
