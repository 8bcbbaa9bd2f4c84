"""Memory as bars (now) and as series (along a trace)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

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
        device, name, virtual: which device.
        parts: `(part, bytes)` in the order of `BAR_PARTS`, empty ones left out.
        total: bytes of the device; of the parts when unknown.
        known_total: whether the device told its size.
        peak: highest allocation in the last trace, 0 without one and where nothing was allocated in it.
        refused: what the first allocation that did not fit in it would have come to; 0 if all did.
    """

    device: DeviceId
    name: str
    virtual: bool
    parts: tuple[tuple[str, int], ...]
    total: int
    known_total: bool
    peak: int
    refused: int = 0

    @property
    def used(self) -> int:
        """Bytes that are not free."""
        return sum(size for part, size in self.parts if part != "free")

    @property
    def in_use(self) -> int:
        """Bytes of live tensors."""
        return sum(size for part, size in self.parts if part not in _LATE)

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


def memory_bars(
    memory: Iterable[DeviceMemory],
    trace: Trace | None = None,
    *,
    with_cpu: bool = False,
    before: Iterable[DeviceMemory] | None = None,
) -> tuple[MemoryBar, ...]:
    """Bars of the accelerators; of the cpu, where it holds anything, if asked for or if there is nothing else.

    Args:
        before: while a cell runs: what there was when it began. Tensors beyond that may be activations of its step.
    """
    devices = sorted(memory, key=lambda each: device_order(each.device))
    accelerators = [each for each in devices if each.device.is_accelerator]
    if accelerators and not with_cpu:
        devices = accelerators
    outside = {each.device: each.activations for each in before} if before is not None else None
    curves = {curve.device: curve for curve in trace.memory} if trace is not None else {}
    bars = []
    for each in devices:
        bar = _make_bar(each, curves.get(each.device), outside)
        if each.device.kind != "meta" and (bar.total or each.device.is_accelerator):
            bars.append(bar)
    return tuple(bars)


def _make_bar(memory: DeviceMemory, curve: MemoryCurve | None, before: dict[DeviceId, int] | None) -> MemoryBar:
    sizes = {category: getattr(memory, category) for category in CATEGORIES}
    unknown, running = sizes.pop("activations"), 0
    if before is not None:
        running = max(0, unknown - before.get(memory.device, 0))
    sizes |= {"running": running, "outside": unknown - running}
    parts = _list_parts(sizes, BAR_PARTS)
    refused = curve.refused[0].allocated + curve.refused[0].bytes if curve is not None and curve.refused else 0
    return MemoryBar(
        device=memory.device,
        name=memory.name,
        virtual=memory.virtual,
        parts=parts,
        total=memory.total or sum(size for _, size in parts),
        known_total=bool(memory.total),
        peak=_allocated_peak(curve) if curve is not None else 0,
        refused=refused,
    )


def _list_parts(sizes: Mapping[str, int], order: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Those that are not empty, in an order."""
    return tuple((part, sizes[part]) for part in order if sizes.get(part))


def peak_bytes(trace: Trace) -> dict[DeviceId, int]:
    """The highest allocation of each device that has an allocator, over a trace that allocated something there."""
    peaks = {curve.device: _allocated_peak(curve) for curve in trace.memory}
    return {device: peak for device, peak in peaks.items() if peak}


def _allocated_peak(curve: MemoryCurve) -> int:
    """0 where no allocator was asked, and where nothing was allocated in the trace."""
    has_changes = len(values_once(curve.points, "allocated")) > 1
    if curve.source == "allocator" and curve.peak is not None and has_changes:
        return curve.peak.allocated
    return 0


def memory_series(trace: Trace) -> tuple[MemorySeries, ...]:
    """The devices that held anything during the trace; a phase begins with the first point in it on any of them."""
    used = [(curve, peak) for curve in trace.memory if (peak := curve.peak) is not None and (peak.allocated or curve.refused)]
    used.sort(key=lambda pair: device_order(pair[0].device))
    placed: list[tuple[int, str]] = []
    for curve, _ in used:
        placed += zip(_point_positions(curve), [point.phase for point in curve.points], strict=True)
    placed.sort(key=lambda pair: pair[0])
    phases = tuple((phase, next(run)[0]) for phase, run in groupby(placed, key=lambda pair: pair[1]))
    return tuple(MemorySeries(curve, peak, _point_positions(curve), _curve_parts(curve), phases) for curve, peak in used)


def _point_positions(curve: MemoryCurve) -> tuple[int, ...]:
    if curve.source == "allocator":
        return tuple(point.number for point in curve.points)
    return tuple(range(len(curve.points)))


def _curve_parts(curve: MemoryCurve) -> tuple[tuple[str, tuple[int, ...]], ...]:
    parts = ((role, tuple(map(attrgetter(role), curve.points))) for role in ROLES)
    return tuple((role, values) for role, values in parts if any(values))


def point_parts(point: MemoryPoint) -> tuple[tuple[str, int], ...]:
    """What a point is made of, largest first."""
    parts = _list_parts({role: getattr(point, role) for role in ROLES}, ROLES)
    return tuple(sorted(parts, key=lambda part: -part[1]))
