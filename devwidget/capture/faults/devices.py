"""Devices that this machine does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Unpack

import torch

from devwidget.capture import devices
from devwidget.capture.faults import operand_names
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.interrupts import is_from_handler
from devwidget.capture.object_fields import format_value, is_a
from devwidget.capture.recording.descriptions import FaultFacts, fault_at
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.tensors import DEVICE, is_tensor, tensors_in
from devwidget.records.device import CURRENT_SETTERS, KINDS, PLACING_METHODS
from devwidget.records.trace import FaultDetails


@dataclass(frozen=True, slots=True)
class _Wrong:
    requested: Any
    text: str


def handle_failure(call: FailedCall) -> Any:
    """Heal with the first device that does exist, which is what was meant more often than not."""
    wrong = next((w for w in map(_wrong, _requests(call.func, call.args, call.kwargs)) if w is not None), None)
    if wrong is None:
        return NOT_OURS
    known = devices.list_devices()
    heals = call.state.heal and call.name not in CURRENT_SETTERS  # those are read when all is over
    out = _again(call.func, call.args, call.kwargs, wrong, known) if heals else NOT_OURS
    names = operand_names.Names(call.state, call.frame)
    expression, birth = names.device_argument(wrong.requested)
    report_absent(
        call.state,
        call.name,
        raw_site(call.frame),
        requested=wrong.text,
        error=call.error_text,
        healed=out is not NOT_OURS,
        expression=expression,
        birth=birth,
        model_name=names.model_name(),
    )
    return out


def report_absent(state: RecordingState, call: str, site: RawSite | None, **facts: Unpack[FaultFacts]) -> None:
    """Log that a call asked for a device that is not there, or for one that this build of torch cannot use."""
    facts["available"] = devices.list_devices()
    kind = facts.get("requested", "").partition(":")[0]
    if kind in KINDS and not devices.is_built_for(kind):
        facts["details"] = FaultDetails("build", version=torch.__version__)
    state.log.log_fault(fault_at(state.tracker, "device", call, site, **facts))


def _requests(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Arguments that may name a device."""
    if "device" in kwargs:
        yield kwargs["device"]
    name = getattr(func, "__name__", "")
    if name in (*PLACING_METHODS, *CURRENT_SETTERS, "_parse_to", "device"):
        yield from (arg for arg in args if is_a(arg, (str, DEVICE)) or type(arg) is int)
    if name in KINDS and not any(not is_tensor(arg) for arg in args) and not kwargs:
        yield name


def _wrong(requested: Any) -> _Wrong | None:
    """Why a device does not exist; None if it does, or if we cannot tell."""
    if requested is None:
        return None
    try:
        device = torch.device(devices.kind_here(), requested) if type(requested) is int else torch.device(requested)
    except (RuntimeError, TypeError):
        return _Wrong(requested, format_value(requested))
    if device.type in KINDS and (device.index or 0) >= devices.count_of(device.type):
        return _Wrong(requested, str(device))
    return None


def _again(func: Any, args: Any, kwargs: Any, wrong: _Wrong, known: tuple[str, ...]) -> Any:
    """The call with a device that exists: the first one, which is what was meant more often than not."""
    if list(tensors_in((args, kwargs))) and known[0] == "cpu":
        return NOT_OURS

    def change(value: Any) -> Any:
        return known[0] if value is wrong.requested and not is_tensor(value) else value

    new_args = tuple(map(change, args))
    if getattr(func, "__name__", "") in KINDS and wrong.requested in KINDS:
        return NOT_OURS
    try:
        return func(*new_args, **{key: change(value) for key, value in kwargs.items()})
    except Exception as other:  # something else is wrong with this call: the caller raises the first error
        if is_from_handler(other):
            raise
        return NOT_OURS
