"""Random generators on another device type than the requested numbers."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import default_device
from devwidget.capture.faults import operand_names
from devwidget.capture.faults.failed_call import NOT_OURS, FailedCall
from devwidget.capture.object_fields import is_a
from devwidget.capture.recording.descriptions import lost_operand
from devwidget.capture.recording.event_log import device_id
from devwidget.records.errors import message


def handle_failure(call: FailedCall) -> Any:
    """Repair with a new generator of the right type and the same seed."""
    given = (call.kwargs.get("generator"), *call.args)
    # Virtual GPUs replace torch.Generator by their own class.
    generator = next((value for value in given if is_a(value, torch_internals.Generator)), None)
    if generator is None or "generator" not in message(call.error).lower():
        return NOT_OURS
    asked, there = call.kwargs.get("device"), [tensor.device for tensor in call.tensors()]
    target = torch.device(asked) if asked is not None else next(iter(there), default_device())
    if target.type == generator.device.type:
        return NOT_OURS
    out = NOT_OURS
    if call.state.heal:
        out = call.again_replacing(generator, torch.Generator(target).manual_seed(generator.initial_seed()))
    names = operand_names.Names(call.state, call.frame)
    made = names.made_by_call(generator, "Generator")
    found, expression = device_id(generator.device), names.expression(generator)
    operand = lost_operand(found, "generator", expression, "Generator", stray=True, birth=made)
    call.report("operands", (), target, out, others=(operand,))
    return out
