"""Describe operands and faults for the recording."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture.recording.event_log import bytes_of, device_id, format_dtype
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import RawSite, to_site
from devwidget.records.device import DeviceId
from devwidget.records.site import Site
from devwidget.records.trace import Family, Fault, Operand


def operand_of(tensor: torch.Tensor, argument: str, expression: str, **fields: Any) -> Operand:
    """Describe a tensor argument in its current state; `fields` are further fields of `Operand`."""
    shape, dtype, device = tuple(tensor.shape), format_dtype(tensor.dtype), device_id(tensor.device)
    fields.setdefault("requires_grad", tensor.requires_grad)
    return Operand(argument, expression, shape, dtype, device, bytes_of(tensor), **fields)


def lost_operand(device: DeviceId, argument: str, expression: str, dtype: str = "", **fields: Any) -> Operand:
    """Describe a tensor that no longer exists, or a non-tensor: only its device is known, from a message or the source."""
    return Operand(argument, expression, (), dtype, device, 0, **fields)


def fault_at(tracker: ModuleTracker, what: Family, call: str, site: RawSite | Site | None, **fields: Any) -> Fault:
    """Describe a call that failed at `site`, in the running module and phase unless `fields` of `Fault` say otherwise."""
    known = {"module": tracker.module, "phase": tracker.phase, "error": "", **fields}
    return Fault(number=0, what=what, call=call, site=site if isinstance(site, Site) else to_site(site), **known)
