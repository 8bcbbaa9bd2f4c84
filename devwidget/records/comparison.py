"""Comparison: what changed from one trace to another."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.schema.fields import Size
from devwidget.records.schema.record import Record
from devwidget.records.site import Phase


@dataclass(frozen=True, slots=True)
class HopChange:
    """Crossings of one source text between the same two devices, in both traces.

    Attributes:
        source: the device that was left.
        target: the device that was gone to.
        cause: as in Move.
        phase: part of the step.
        module: path of the module that asked for it, None outside the model.
        text: the line, without its number, which moves as the file is edited.
        before: crossings in the first trace.
        after: crossings in the second.
        before_bytes: bytes of all of them.
        after_bytes: bytes of all of them.
    """

    source: DeviceId
    target: DeviceId
    cause: str
    phase: Phase
    module: str | None
    text: str
    before: Size
    after: Size
    before_bytes: Size
    after_bytes: Size


@dataclass(frozen=True, slots=True)
class PeakChange:
    """The highest allocation on one device, 0 where a trace has none."""

    device: DeviceId
    before: Size
    after: Size


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """Two traces, before and after a change.

    Attributes:
        fixed: findings of the first that the second has no more.
        new: findings of the second that the first had not.
        left: findings of both.
        hops: those that differ, most bytes first.
        peaks: of each device that has an allocator.
        hops_before: crossings of all lines in the first trace.
        hops_after: the same in the second.
        bytes_before: bytes of all crossings in the first.
        bytes_after: the same in the second.
        error_before: the exception that ended the first, "" if none did.
        error_after: the same of the second.
    """

    fixed: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    hops: tuple[HopChange, ...] = ()
    peaks: tuple[PeakChange, ...] = ()
    hops_before: Size = 0
    hops_after: Size = 0
    bytes_before: Size = 0
    bytes_after: Size = 0
    error_before: str = ""
    error_after: str = ""
