"""Memory as bars (now) and as series (along a trace)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from devwidget.memory import Held as Held
from devwidget.memory import categorize_memory as categorize_memory
from devwidget.memory import held_by as held_by
from devwidget.records.device import DeviceId
from devwidget.records.memory import CATEGORIES, ROLES, DeviceMemory, MemoryCurve, MemoryPoint
from devwidget.records.trace import Trace
from devwidget.views.placement import device_order
from devwidget.views.sums import values_once

_LATE = ("others", "cache", "free")
BAR_PARTS = (*(category for category in CATEGORIES if category not in (*_LATE, "activations")), "running", "outside", *_LATE)
"""The parts of a bar from left to right: what is in use before what is only reserved."""


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """One device's bar.

    Attributes:
        device: which device.
        parts: `(part, bytes)` in the order of `BAR_PARTS`, empty ones left out.
        total: bytes of the device; of the parts when unknown.
        known_total: whether the size of the device is known.
        peak: highest allocation in the last trace, 0 without one and where nothing was allocated in it.
        refused: what the first allocation that did not fit in it would have come to; 0 if all did.
    """

    device: DeviceId
    parts: tuple[tuple[str, int], ...]
    total: int
    known_total: bool
    peak: int
    refused: int = 0

    @property
    def used(self) -> int:
        """Bytes that are not free."""
        return sum_parts(self.parts, "free")

    @property
    def in_use(self) -> int:
        """Bytes of live tensors."""
        return sum_parts(self.parts, *_LATE)

    @property
    def reserved(self) -> int:
        """Bytes that the allocator holds: those in use and its cache."""
        return self.in_use + dict(self.parts).get("cache", 0)


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """One device along a trace.

    Attributes:
        curve: its facts.
        peak: the highest point.
        positions: of the points: their places in the trace, or, for ends of phases, which phase it was.
        parts: `(role, bytes at each point)` in drawing order, empty roles left out.
        phases: `(phase, position)`: where each part of the step begins, on all devices of the trace.
    """

    curve: MemoryCurve
    peak: MemoryPoint
    positions: tuple[int, ...]
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    phases: tuple[tuple[str, int], ...]


def sum_parts(parts: Iterable[tuple[str, int]], *without: str) -> int:
    """Add up the bytes of parts, except those named."""
    return sum(size for part, size in parts if part not in without)


def list_parts(record: object, names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """List the attributes that are not 0, as `(name, bytes)` in the order of the names."""
    return tuple(filter(itemgetter(1), zip(names, attrgetter(*names)(record), strict=True)))


def find_curve(trace: Trace, device: DeviceId) -> MemoryCurve | None:
    """Find the memory of one device along a trace."""
    return next((curve for curve in trace.memory if curve.device == device), None)


def refused_bytes(curve: MemoryCurve | None) -> int:
    """Return what the first allocation that did not fit would have come to; 0 if all did."""
    if curve is None or not curve.refused:
        return 0
    return curve.refused[0].allocated + curve.refused[0].bytes


def memory_bars(
    memory: Iterable[DeviceMemory],
    trace: Trace | None = None,
    *,
    with_cpu: bool = False,
    before: Iterable[DeviceMemory] | None = None,
) -> tuple[MemoryBar, ...]:
    """Return bars of the accelerators; of the cpu, where it holds anything, if asked for or if there is nothing else.

    Args:
        before: while a cell runs, the memory when it began: tensors beyond that may be activations of its step.
    """
    devices = sorted(memory, key=lambda each: device_order(each.device))
    accelerators = [each for each in devices if each.device.is_accelerator]
    if accelerators and not with_cpu:
        devices = accelerators
    outside = None
    if before is not None:
        outside = {each.device: each.activations for each in before}
    bars = []
    for each in devices:
        bar = _make_bar(each, find_curve(trace or Trace(), each.device), outside)
        if each.device.kind != "meta" and (bar.total or each.device.is_accelerator):
            bars.append(bar)
    return tuple(bars)


def _make_bar(memory: DeviceMemory, curve: MemoryCurve | None, before: dict[DeviceId, int] | None) -> MemoryBar:
    running = 0
    if before is not None:
        running = max(0, memory.activations - before.get(memory.device, 0))
    sizes = dict(list_parts(memory, CATEGORIES)) | {"running": running, "outside": memory.activations - running}
    parts = tuple((part, sizes[part]) for part in BAR_PARTS if sizes.get(part))
    return MemoryBar(
        device=memory.device,
        parts=parts,
        total=memory.total or sum_parts(parts),
        known_total=bool(memory.total),
        peak=_allocated_peak(curve),
        refused=refused_bytes(curve),
    )


def peak_bytes(trace: Trace) -> dict[DeviceId, int]:
    """The highest allocation of each device that has an allocator, over a trace that allocated something there."""
    peaks = ((curve.device, _allocated_peak(curve)) for curve in trace.memory)
    return dict(filter(itemgetter(1), peaks))


def _allocated_peak(curve: MemoryCurve | None) -> int:
    """Return 0 where there is no allocator to ask, and where nothing was allocated in the trace."""
    if curve is None or curve.source != "allocator" or curve.peak is None:
        return 0
    if len(values_once(curve.points, "allocated")) > 1:
        return curve.peak.allocated
    return 0


def memory_series(trace: Trace) -> tuple[MemorySeries, ...]:
    """The devices that held anything during the trace; a phase begins with the first point in it on any of them."""
    used = []
    for curve in trace.memory:
        if curve.peak is not None and (curve.peak.allocated or curve.refused):
            used.append(curve)
    used.sort(key=lambda curve: device_order(curve.device))
    placed: list[tuple[int, str]] = []
    for curve in used:
        placed += zip(_point_positions(curve), map(attrgetter("phase"), curve.points), strict=True)
    phases: list[tuple[str, int]] = []
    for position, phase in sorted(placed, key=itemgetter(0)):
        if not phases or phases[-1][0] != phase:
            phases.append((phase, position))
    return tuple(_make_series(curve, tuple(phases)) for curve in used)


def _make_series(curve: MemoryCurve, phases: tuple[tuple[str, int], ...]) -> MemorySeries:
    assert curve.peak is not None
    parts = []
    for role in ROLES:
        sizes = tuple(map(attrgetter(role), curve.points))
        if any(sizes):
            parts.append((role, sizes))
    return MemorySeries(curve, curve.peak, _point_positions(curve), tuple(parts), phases)


def _point_positions(curve: MemoryCurve) -> tuple[int, ...]:
    if curve.source == "allocator":
        return tuple(map(attrgetter("number"), curve.points))
    return tuple(range(len(curve.points)))


def point_parts(point: MemoryPoint) -> tuple[tuple[str, int], ...]:
    """What a point is made of, largest first."""
    return tuple(sorted(list_parts(point, ROLES), key=itemgetter(1), reverse=True))
