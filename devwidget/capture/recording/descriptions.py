"""Operands and faults as a recording writes them down: one function makes each of them."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import torch

from devwidget.capture.recording.event_log import bytes_of, device_id, format_dtype
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.records.device import DeviceId
from devwidget.records.site import Phase, Site
from devwidget.records.trace import Family, Fault, FaultDetails, Held, Operand


class OperandFacts(TypedDict, total=False):
    """What may be known of an operand besides the tensor; see `Operand`."""

    stray: bool
    birth: Site | None
    birth_call: str
    birth_op: str
    birth_direct: bool
    birth_partner: str
    held: Held | None
    ineffective: Site | None
    source: str


class FaultFacts(TypedDict, total=False):
    """What may be known of a fault besides its place; see `Fault`."""

    module: str | None
    phase: Phase
    error: str
    operands: tuple[Operand, ...]
    target: DeviceId | None
    healed: bool
    requested: str
    available: tuple[str, ...]
    expression: str
    birth: Site | None
    model_name: str
    details: FaultDetails


def operand_of(tensor: torch.Tensor, argument: str, expression: str, **facts: Unpack[OperandFacts]) -> Operand:
    """A tensor that a call was given, as it is now."""
    shape, dtype, device = tuple(tensor.shape), format_dtype(tensor.dtype), device_id(tensor.device)
    return Operand(argument, expression, shape, dtype, device, bytes_of(tensor), **facts)


def lost_operand(device: DeviceId, argument: str, expression: str, dtype: str = "", **facts: Unpack[OperandFacts]) -> Operand:
    """A tensor that is no more, or what is none: only its device is known, from a message or from the source."""
    return Operand(argument, expression, (), dtype, device, 0, **facts)


def fault_at(
    tracker: ModuleTracker, what: Family, call: str, site: RawSite | Site | None, **facts: Unpack[FaultFacts]
) -> Fault:
    """A call that failed at `site`, in the module and the phase that are running unless the facts name others."""
    known: dict[str, Any] = {"module": tracker.module, "phase": tracker.phase, "error": "", **facts}
    return Fault(number=0, what=what, call=call, site=site if isinstance(site, Site) else to_site(site), **known)
