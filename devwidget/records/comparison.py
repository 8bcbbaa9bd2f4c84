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
    """Transfers of one source text between the same two devices, in both traces.

    Attributes:
        source: the device copied from.
        target: the device copied to.
        cause: as in Move.
        phase: part of the step.
        module: path of the module that requested it, None outside of the model.
        text: the line without its number, which changes as the file is edited.
        before: number of transfers in the first trace.
        after: number of transfers in the second.
        before_bytes: bytes of the transfers in the first trace.
        after_bytes: bytes of the transfers in the second.
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
        fixed: findings of the first that the second no longer has.
        new: findings of the second that the first did not have.
        left: findings of both.
        hops: transfers that differ, most bytes first.
        peaks: peaks of each device with an allocator.
        hops_before: transfers of all lines in the first trace.
        hops_after: the same in the second.
        bytes_before: bytes of all transfers in the first.
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
