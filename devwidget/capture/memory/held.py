"""Memory where there is no allocator to ask: what the model and its optimizer hold at the end of each phase."""

from __future__ import annotations

from collections.abc import Sequence

from devwidget.records.device import CPU
from devwidget.records.memory import HELD, DeviceMemory, MemoryCurve, MemoryPoint
from devwidget.records.site import Phase


def held_curves(marks: Sequence[tuple[int, Phase, tuple[DeviceMemory, ...]]]) -> tuple[MemoryCurve, ...]:
    """The curve of the cpu, if the model holds anything there; activations are unknown, and so left out."""
    of_cpu = [(number, phase, memory) for number, phase, devices in marks for memory in devices if memory.device == CPU]
    points = tuple(_make_point(*mark) for mark in of_cpu)
    return (MemoryCurve(of_cpu[-1][2], "model", points),) if any(point.allocated for point in points) else ()


def _make_point(number: int, phase: Phase, memory: DeviceMemory) -> MemoryPoint:
    parts = {part: getattr(memory, part) for part in HELD}
    return MemoryPoint(number, phase, None, None, sum(parts.values()), **parts)
