"""Memory as bars (now) and as series (along a trace)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from devwidget.memory import Held as Held
from devwidget.memory import categorize_memory as categorize_memory
from devwidget.memory import held_by as held_by
from devwidget.records.device import DeviceId
from devwidget.records.memory import CATEGORIES, ROLES, DeviceMemory, MemoryCurve, MemoryPoint
from devwidget.records.trace import Trace
from devwidget.views.placement import device_order

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
    peaks = peak_bytes(trace) if trace else {}
    accelerators = [each for each in devices if each.device.is_accelerator]
    chosen = devices if with_cpu or not accelerators else accelerators
    if before is None:
        outside = None
    else:
        outside = {each.device: each.activations for each in before}
    refused = _refused_bytes(trace) if trace else {}
    wanted = (each for each in chosen if each.device.kind != "meta")
    bars = (_make_bar(each, peaks.get(each.device, 0), refused.get(each.device, 0), outside) for each in wanted)
    return tuple(bar for bar in bars if bar.total or bar.device.is_accelerator)


def _make_bar(memory: DeviceMemory, peak: int, refused: int, before: dict[DeviceId, int] | None) -> MemoryBar:
    sizes = {category: getattr(memory, category) for category in CATEGORIES}
    unknown = sizes.pop("activations")
    if before is None:
        sizes["running"] = 0
    else:
        sizes["running"] = max(0, unknown - before.get(memory.device, 0))
    sizes["outside"] = unknown - sizes["running"]
    parts = tuple((part, size) for part in BAR_PARTS if (size := sizes.get(part, 0)))
    total = memory.total or sum(size for _, size in parts)
    return MemoryBar(memory.device, memory.name, memory.virtual, parts, total, bool(memory.total), peak, refused)


def peak_bytes(trace: Trace) -> dict[DeviceId, int]:
    """The highest allocation of each device that has an allocator, over a trace that allocated something there."""
    curves = (curve for curve in trace.memory if curve.source == "allocator" and curve.peak)
    return {curve.device: curve.peak.allocated for curve in curves if curve.peak and _has_changes(curve)}


def _refused_bytes(trace: Trace) -> dict[DeviceId, int]:
    """What the first allocation that did not fit would have come to."""
    firsts = {curve.device: curve.refused[0] for curve in trace.memory if curve.refused}
    return {device: first.allocated + first.bytes for device, first in firsts.items()}


def _has_changes(curve: MemoryCurve) -> bool:
    return len({point.allocated for point in curve.points}) > 1


def memory_series(trace: Trace) -> tuple[MemorySeries, ...]:
    """The devices that held anything during the trace; a phase begins with the first point in it on any of them."""
    used = [(curve, peak) for curve in trace.memory if (peak := curve.peak) is not None and (peak.allocated or curve.refused)]
    placed = (pair for curve, _ in used for pair in zip(_point_positions(curve), curve.points, strict=True))
    runs = groupby(sorted(placed, key=lambda pair: pair[0]), key=lambda pair: pair[1].phase)
    phases = tuple((phase, next(run)[0]) for phase, run in runs)
    used.sort(key=lambda pair: device_order(pair[0].device))
    return tuple(MemorySeries(curve, peak, _point_positions(curve), _curve_parts(curve), phases) for curve, peak in used)


def _point_positions(curve: MemoryCurve) -> tuple[int, ...]:
    return tuple(point.number if curve.source == "allocator" else place for place, point in enumerate(curve.points))


def _curve_parts(curve: MemoryCurve) -> tuple[tuple[str, tuple[int, ...]], ...]:
    parts = ((role, tuple(getattr(point, role) for point in curve.points)) for role in ROLES)
    return tuple((role, values) for role, values in parts if any(values))


def point_parts(point: MemoryPoint) -> tuple[tuple[str, int], ...]:
    """What a point is made of, largest first."""
    parts = [(role, size) for role in ROLES if (size := getattr(point, role))]
    return tuple(sorted(parts, key=lambda part: -part[1]))
