"""What each module and each line of a trace takes: bytes at the peaks, which add up to what allocators said, and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from devwidget.records.device import DeviceId
from devwidget.records.memory import MemoryCurve, PeakShare
from devwidget.records.site import Site
from devwidget.records.trace import ModuleEvent, OpEvent, Trace

KEPT = "kept"
"""Activations that backward needs, when there were most of them: a peak in the optimizer has none any more."""


@dataclass(frozen=True, slots=True)
class ModuleUsage:
    """One row: what a module, or a replica of it, was called with, and what it had at the peaks.

    Attributes:
        event: its calls; None for one that was not called itself, and for what belongs to no module.
        path: of the module; None outside of all.
        bytes: by role, of all devices, each at its own peak; for `KEPT` when there were most.
    """

    event: ModuleEvent | None
    path: str | None
    bytes: dict[str, int]


@dataclass(slots=True)
class LineUsage:
    """One row: a line on one device.

    Attributes:
        device: where its results lie; None for what gives no tensor.
        site: the line, of the user and of the library that it has called; None for what was there before, or is unknown.
        bytes: by role, at the peak of the device; for `KEPT` when there were most.
        operators: how many it ran there, including its backward pass.
        seconds: time of the host that they took, and what Python did before each.
        backward_seconds: of that, in backward.
        shape: of the first result.
    """

    device: DeviceId | None
    site: Site | None
    bytes: dict[str, int] = field(default_factory=dict)
    operators: int = 0
    seconds: float = 0.0
    backward_seconds: float = 0.0
    shape: tuple[int, ...] = ()

    def add_operator(self, op: OpEvent) -> None:
        """An operator of this line."""
        self.shape = self.shape or op.shape
        self.operators += op.count
        self.seconds += op.seconds
        if op.phase == "backward":
            self.backward_seconds += op.seconds


def list_modules(trace: Trace) -> list[ModuleUsage]:
    """A row for each call that the trace has, in order; then what had bytes without being called."""
    rows = [ModuleUsage(event, event.path, {}) for event in trace.modules]
    places: dict[str | None, list[ModuleUsage]] = {}
    for row in rows:
        places.setdefault(row.path, []).append(row)
    for curve, share, role in _list_shares(trace.memory):
        known = places.get(share.module)
        if known is None:
            known = places[share.module] = [ModuleUsage(None, share.module, {})]
            rows += known
        row = _find_replica(known, curve.device)
        row.bytes[role] = row.bytes.get(role, 0) + share.bytes
    return rows


def list_lines(trace: Trace) -> list[LineUsage]:
    """A row for each line and device, that with the most bytes first."""
    rows: dict[object, LineUsage] = {}
    for curve, share, role in _list_shares(trace.memory):
        row = _find_line(rows, curve.device, share.site)
        row.bytes[role] = row.bytes.get(role, 0) + share.bytes
    for op in trace.ops:
        _find_line(rows, op.output, op.site).add_operator(op)
    return sorted(rows.values(), key=lambda row: (-sum(row.bytes.values()), -row.seconds))


def _list_shares(curves: Iterable[MemoryCurve]) -> Iterator[tuple[MemoryCurve, PeakShare, str]]:
    """Each share with its curve, and what it counts as."""
    for curve in curves:
        for share in curve.shares:
            yield curve, share, share.role
        for share in curve.kept:
            yield curve, share, KEPT


def _find_replica(rows: list[ModuleUsage], device: DeviceId) -> ModuleUsage:
    """That which ran on the device, of several replicas of one module."""
    for row in rows:
        if row.event is not None and device in (*row.event.inputs, *row.event.outputs):
            return row
    return rows[0]


def _find_line(rows: dict[object, LineUsage], device: DeviceId | None, site: Site | None) -> LineUsage:
    key = device, site.place if site is not None else None
    if key not in rows:
        rows[key] = LineUsage(device, site)
    return rows[key]
