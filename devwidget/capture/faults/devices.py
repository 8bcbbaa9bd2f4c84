"""Calls that request devices that this machine does not have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch

from devwidget.capture import devices
from devwidget.capture.faults import operand_names
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.object_fields import format_value, is_a
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.tensors import DEVICE, is_tensor
from devwidget.records.device import CURRENT_SETTERS, KINDS, PLACING_METHODS
from devwidget.records.errors import error_text
from devwidget.records.fault_details import NotBuilt, NotVisible


def handle_absent_device(call: FailedCall) -> Any:
    """Repair with the first device that exists, which is usually the intended one."""
    requests = {_describe_absent(each): each for each in _requests(call.name, call.args, call.kwargs)}
    requests.pop("", None)
    if not requests:
        return NOT_OURS
    text, requested = next(iter(requests.items()))
    out = NOT_OURS
    if call.state.heal and call.name not in CURRENT_SETTERS:  # those are read when all is over
        out = _again(call, requested)
    names = operand_names.Names(call.state, call.frame)
    expression, birth = names.device_argument(requested)
    report_absent(
        call.state,
        call.name,
        raw_site(call.frame),
        text,
        error_text(call.error),
        healed=out is not NOT_OURS,
        expression=expression,
        birth=birth,
        model_name=names.model_name(),
    )
    return out


def report_absent(state: RecordingState, call: str, site: RawSite | None, requested: str, error: str, **fields: Any) -> None:
    """Record that a call requested a missing device, or one that this build of torch does not support."""
    kind = requested.partition(":")[0]
    state.report_fault(
        "device",
        call,
        site,
        requested=requested,
        error=error,
        available=devices.list_devices(),
        detail=_why_absent(kind),
        **fields,
    )


def _why_absent(kind: str) -> NotBuilt | NotVisible | None:
    """Return why there is no device of a kind; None if there is one, or if several reasons are possible."""
    if kind not in KINDS or devices.count_of(kind):
        return None
    if not devices.is_built_for(kind):
        return NotBuilt(torch.__version__)
    variable = KINDS[kind].visible_variable
    value = os.environ.get(variable)
    if value is None:
        return NotVisible("")
    if value in ("", "-1"):
        return NotVisible(f"{variable}={value}")
    return None


def _requests(name: str, args: Any, kwargs: Any) -> Iterator[Any]:
    if "device" in kwargs:
        yield kwargs["device"]
    if name in (*PLACING_METHODS, *CURRENT_SETTERS, "_parse_to", "device"):
        for argument in args:
            if is_a(argument, (str, DEVICE)) or type(argument) is int:
                yield argument
    if name in KINDS and all(map(is_tensor, args)) and not kwargs:
        yield name


def _describe_absent(requested: Any) -> str:
    """Return a device as text; "" if it exists or is unknown."""
    if requested is None:
        return ""
    try:
        if type(requested) is int:
            device = torch.device(devices.kind_here(), requested)
        else:
            device = torch.device(requested)
    except (RuntimeError, TypeError):
        return format_value(requested)
    is_absent = device.type in KINDS and (device.index or 0) >= devices.count_of(device.type)
    if is_absent:
        return str(device)
    return ""


def _again(call: FailedCall, requested: Any) -> Any:
    """Repeat the call with the first existing device, which is usually the intended one."""
    first = devices.list_devices()[0]
    if (call.tensors() and first == "cpu") or (call.name in KINDS and requested in KINDS):
        return NOT_OURS
    return call.again_replacing(requested, first)
