"""Memory as bars (now) and as series (along a trace)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from devwidget.memory.accounting import Held as Held
from devwidget.memory.accounting import held_by as held_by
from devwidget.memory.accounting import told_apart as told_apart
from devwidget.records.device import DeviceId
from devwidget.records.memory import CATEGORIES, DeviceMemory
from devwidget.records.memory_curve import ROLES, MemoryCurve, MemoryPoint
from devwidget.records.trace import Trace
from devwidget.views.placement import device_order

USED = tuple(category for category in CATEGORIES if category != "free")


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """One device's bar.

    Attributes:
        device, name, virtual: which device.
        parts: `(category, bytes)` in drawing order, empty parts left out.
        total: bytes of the device; of the parts when unknown.
        known_total: whether the device told its size.
        peak: highest allocation in the last trace; else what the device reported; 0 when unknown.
    """

    device: DeviceId
    name: str
    virtual: bool
    parts: tuple[tuple[str, int], ...]
    total: int
    known_total: bool
    peak: int

    @property
    def used(self) -> int:
        """Bytes that are not free."""
        return sum(size for category, size in self.parts if category != "free")


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """One device along a trace.

    Attributes:
        curve: its facts.
        peak: the highest point.
        positions: of the points: their places in the trace, or, for ends of phases, which phase it was.
        parts: `(role, bytes at each point)` in drawing order, empty roles left out.
        phases: `(phase, position)`: where each run of points in the same phase begins.
    """

    curve: MemoryCurve
    peak: MemoryPoint
    positions: tuple[int, ...]
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    phases: tuple[tuple[str, int], ...]


def memory_bars(memory: Iterable[DeviceMemory], trace: Trace | None = None, *, with_cpu: bool = False) -> tuple[MemoryBar, ...]:
    """Bars of the accelerators; of the cpu too if asked for, or if there is nothing else."""
    devices = sorted(memory, key=lambda each: device_order(each.device))
    peaks = peak_bytes(trace) if trace else {}
    accelerators = [each for each in devices if each.device.is_accelerator]
    chosen = devices if with_cpu or not accelerators else accelerators
    return tuple(_bar(each, peaks.get(each.device, 0) or each.peak) for each in chosen if each.device.kind != "meta")


def _bar(memory: DeviceMemory, peak: int) -> MemoryBar:
    parts = tuple((category, size) for category in CATEGORIES if (size := getattr(memory, category)))
    total = memory.total or sum(size for _, size in parts)
    return MemoryBar(memory.device, memory.name, memory.virtual, parts, total, bool(memory.total), peak)


def peak_bytes(trace: Trace) -> dict[DeviceId, int]:
    """The highest allocation of each device that has an allocator, over a trace."""
    return {curve.device: curve.peak.allocated for curve in trace.memory if curve.peak and curve.source == "allocator"}


def memory_series(trace: Trace) -> tuple[MemorySeries, ...]:
    """The devices that held anything during the trace."""
    used = [(curve, peak) for curve in trace.memory if (peak := curve.peak) is not None and (peak.allocated or curve.refused)]
    return tuple(_series(curve, peak) for curve, peak in sorted(used, key=lambda pair: device_order(pair[0].device)))


def _series(curve: MemoryCurve, peak: MemoryPoint) -> MemorySeries:
    parts = ((role, tuple(getattr(point, role) for point in curve.points)) for role in ROLES)
    positions = tuple(point.number if curve.source == "allocator" else place for place, point in enumerate(curve.points))
    runs = groupby(zip(curve.points, positions, strict=True), key=lambda pair: pair[0].phase)
    return MemorySeries(
        curve,
        peak,
        positions,
        tuple((role, values) for role, values in parts if any(values)),
        tuple((phase, next(run)[1]) for phase, run in runs),
    )


def point_parts(point: MemoryPoint) -> tuple[tuple[str, int], ...]:
    """What a point is made of, largest first."""
    parts = [(role, size) for role in ROLES if (size := getattr(point, role))]
    return tuple(sorted(parts, key=lambda part: -part[1]))
