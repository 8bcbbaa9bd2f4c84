"""Memory as bars (now) and as series (along a trace)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from devwidget.memory.accounting import Held as Held
from devwidget.memory.accounting import held_bytes, tell_apart
from devwidget.records.device import DeviceId
from devwidget.records.memory import CATEGORIES, DeviceMemory
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import MemoryPoint, Trace
from devwidget.views.placement import device_order

MODEL_KINDS = ("parameters", "buffers", "attributes", "gradients", "optimizer", "activations")
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
    """Bytes of one device along a trace, one list for each category."""

    device: DeviceId
    labels: tuple[str, ...]
    phases: tuple[str, ...]
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    total: int


def held_by(snapshot: Snapshot) -> Held:
    """Bytes that the model and its optimizer hold: a walk over all tensors, so a live screen keeps the answer."""
    return held_bytes(snapshot.modules, snapshot.optimizer)


def told_apart(
    snapshot: Snapshot, memory: Iterable[DeviceMemory] | None = None, held: Held | None = None
) -> tuple[DeviceMemory, ...]:
    """Memory of each device, the model's bytes told from the others; of the snapshot, or as it is `memory` now.

    Devices whose bytes have been told apart before are left as they are.
    """
    memory = snapshot.memory if memory is None else tuple(memory)
    held = held_by(snapshot) if held is None else held
    kinds = tuple(kind for kind in MODEL_KINDS if kind != "activations")
    done = {each.device for each in memory if any(getattr(each, kind) for kind in kinds)}
    return tell_apart(memory, {device: parts for device, parts in held.items() if device not in done})


def memory_bars(memory: Iterable[DeviceMemory], trace: Trace | None = None, *, with_cpu: bool = False) -> tuple[MemoryBar, ...]:
    """Bars of the accelerators; of the cpu too if asked for, or if there is nothing else."""
    devices = sorted(memory, key=lambda each: device_order(each.device))
    peaks = peak_bytes(trace.memory) if trace else {}
    accelerators = [each for each in devices if each.device.is_accelerator]
    chosen = devices if with_cpu or not accelerators else accelerators
    return tuple(_bar(each, peaks.get(each.device, 0) or each.peak) for each in chosen if each.device.kind != "meta")


def _bar(memory: DeviceMemory, peak: int) -> MemoryBar:
    parts = tuple((category, size) for category in CATEGORIES if (size := getattr(memory, category)))
    total = memory.total or sum(size for _, size in parts)
    return MemoryBar(memory.device, memory.name, memory.virtual, parts, total, bool(memory.total), peak)


def peak_bytes(points: Iterable[MemoryPoint]) -> dict[DeviceId, int]:
    """The highest allocation of each device over the points of a trace."""
    peaks: dict[DeviceId, int] = {}
    for point in points:
        for each in point.devices:
            peaks[each.device] = max(peaks.get(each.device, 0), each.peak, allocated(each))
    return peaks


def allocated(memory: DeviceMemory) -> int:
    """Bytes of live tensors of this process."""
    return sum(getattr(memory, kind) for kind in MODEL_KINDS)


def memory_series(trace: Trace) -> tuple[MemorySeries, ...]:
    """For each device its bytes by category at every point of the trace; categories that stay empty are left out."""
    devices = sorted({each.device for point in trace.memory for each in point.devices}, key=device_order)
    return tuple(_series(device, trace.memory) for device in devices)


def _series(device: DeviceId, points: tuple[MemoryPoint, ...]) -> MemorySeries:
    held = [next((each for each in point.devices if each.device == device), None) for point in points]
    parts = tuple((kind, tuple(getattr(each, kind) if each else 0 for each in held)) for kind in USED if kind != "others")
    return MemorySeries(
        device=device,
        labels=tuple(point.label for point in points),
        phases=tuple(point.phase for point in points),
        parts=tuple((kind, values) for kind, values in parts if any(values)),
        total=max((each.total for each in held if each), default=0),
    )
