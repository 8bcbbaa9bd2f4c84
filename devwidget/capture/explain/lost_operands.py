"""Operands that were computed on the failing line, and are gone: the calls that made them."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from types import FrameType

import torch

from devwidget.capture.devices import accelerator_here
from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.faults import operand_names
from devwidget.capture.faults.call_arguments import arguments
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.faults.made_by import made_by
from devwidget.capture.recording.descriptions import fault_at, lost_operand, operand_of
from devwidget.capture.recording.event_log import device_id, format_dtype
from devwidget.capture.source_code.call_sites import call_text, raw_site
from devwidget.capture.source_code.expressions import failing_call
from devwidget.capture.source_code.past.decisions import Maker
from devwidget.capture.source_code.past.lost_values import Temporaries, element_of, temporaries, unknown_operands
from devwidget.capture.tensors import tensors_in
from devwidget.records.device import CPU, DEVICE_NAME, DeviceId
from devwidget.records.errors import message
from devwidget.records.trace import Fault, Operand

_MOST = re.compile(rf"different from other tensors on ({DEVICE_NAME.pattern})")
_TENSOR_TYPE = re.compile(r"\btorch\.(?:(\w+)\.)?[A-Z]\w*Tensor\b")
_INDEXED = re.compile("same device as the indexed tensor")


def made_there(context: ErrorContext) -> None:
    """The side that is gone was made on the failing line, or by a function that it calls."""
    (named, target), user = devices_named(context), context.user
    there = list(_find_operands(context, user)) if user is not None else []
    homes = {torch.device(str(each.device)) for each in there if each.device.is_accelerator}
    if target is None and len(homes) == 1 and _INDEXED.search(message(context.error)):
        (target,) = homes  # only the tensor that was read is named
    if target is None or user is None:
        return
    others = [each for each in there if each.device == device_id(target)]
    at_hand = tuple(each.expression for each in others if each.expression)
    strays = [
        stray
        for text, found in temporaries(user)
        for device in named
        if device != target and (stray := _temporary(context, text, found, device, target, at_hand)) is not None
    ]
    if strays:
        _report(context, user, (*others, *strays), device_id(target))


def _report(context: ErrorContext, user: FrameType, operands: tuple[Operand, ...], target: DeviceId) -> None:
    call, raw = failing_call(user), raw_site(user)
    name = getattr(call.func, "__name__", "operation") if call is not None else "operation"
    fault = fault_at(context.state.tracker, "operands", name, raw, error=context.error_text, target=target,
                     operands=operands, expression=call_text(raw))  # fmt: skip
    context.state.log.log_fault(fault)


def left_over(context: ErrorContext) -> None:
    """Nothing is known of one operand alone: all others are on one of the two devices that met, so it was on the other."""
    user = context.user
    if user is None or len(context.below) > 1:  # what a library met below may be a tensor of its own
        return
    unknown, others = unknown_operands(user), tuple(_find_operands(context, user))
    homes = {each.device for each in others if each.shape or each.device.is_accelerator}
    if len(unknown) != 1:
        return
    text = ast.unparse(element_of(unknown[0]))
    if len(homes) == 1:
        (home,) = homes
        device = _met(context, home)
        if device is not None and (home.is_accelerator or not device.is_accelerator or _INDEXED.search(message(context.error))):
            _report(context, user, (*others, lost_operand(device, text, "", stray=True, source=text)), home)
    elif not others and isinstance(unknown[0], ast.ListComp | ast.GeneratorExp):
        _mixed(context, user, text)


def _mixed(context: ErrorContext, user: FrameType, text: str) -> None:
    """The elements of a comprehension are on both devices."""
    named, target = devices_named(context)
    if target is not None and len(named) == 2:
        stray = next(device for device in named if device != target)
        first = lost_operand(device_id(target), "tensors", "")
        rest = lost_operand(device_id(stray), text, "", stray=True, source=text)
        _report(context, user, (first, rest), device_id(target))


def _met(context: ErrorContext, home: DeviceId) -> DeviceId | None:
    """The other device that a message speaks of beside one; None if it does not, or may mean several."""
    text = message(context.error)
    types = {kind or "cpu" for kind in _TENSOR_TYPE.findall(text)}
    if _INDEXED.search(text):  # an index may be on the host, so it is on another accelerator
        rest = _accelerators(home)
    elif types:
        rest = [each for each in (CPU, *_accelerators(home)) if each.kind in types - {home.kind}] if home.kind in types else []
    else:
        named = [DeviceId.parse(word) for word in dict.fromkeys(DEVICE_NAME.findall(text))]
        rest = named if home in named else []
    others = [each for each in rest if each != home]
    return others[0] if len(others) == 1 else None


def _accelerators(home: DeviceId) -> list[DeviceId]:
    """The accelerators that there are, of the kind of a device if that is one."""
    kind = accelerator_here() if not home.is_accelerator else torch.device(home.kind)
    count = torch.get_device_module(kind).device_count() if kind is not None else 0
    return [DeviceId(kind.type, index) for index in range(count)] if kind is not None else []


def devices_named(context: ErrorContext) -> tuple[list[torch.device], torch.device | None]:
    """The devices that the message names, and the accelerator that the call belongs on."""
    named = [torch.device(word) for word in dict.fromkeys(DEVICE_NAME.findall(message(context.error)))]
    most = [torch.device(word) for word in _MOST.findall(message(context.error))]
    return named, next((device for device in (*most, *named) if is_accelerator(device)), None)


def _find_operands(context: ErrorContext, user: FrameType) -> Iterator[Operand]:
    """The operands of the failing call that still exist."""
    call, names = failing_call(user), operand_names.Names(context.state, user)
    for label, tensor in arguments(call.func, call.args, call.kwargs) if call is not None else ():
        yield operand_of(tensor, label, names.expression(tensor))


def _temporary(
    context: ErrorContext,
    text: str,
    found: list[Maker | torch.Tensor],
    device: torch.device,
    target: torch.device,
    at_hand: tuple[str, ...],
) -> Operand | None:
    """A value that is gone, by what made it on a device; None if it was not there."""
    made = [m for m in found if isinstance(m, Maker) and m.makes_on(device)]
    if made:
        return made_by(lost_operand(device_id(device), text, "", stray=True, source=text), made, target, at_hand)
    kept = next((t for t in found if not isinstance(t, Maker) and t.device == device and t.dim()), None)
    if kept is None or context.user is None:
        return None
    operand = lost_operand(device_id(device), text, "", stray=True, source=text)
    return operand_names.Names(context.state, context.user).with_birth(operand, kept, target)


def trace_back(context: ErrorContext) -> None:
    """A stray that has no name in the user's frame was computed on the failing line: from what?"""
    user = context.user
    call = failing_call(user) if user is not None else None
    if user is None or call is None:
        return
    names, given = operand_names.Names(context.state, user), list(tensors_in((call.args, call.kwargs)))
    sources = temporaries(user)
    faults = context.state.log.faults
    faults[:] = [
        dataclasses.replace(fault, operands=tuple(_from(names, operand, given, sources, fault) for operand in fault.operands))
        for fault in faults
    ]


def _from(
    names: operand_names.Names, operand: Operand, given: list[torch.Tensor], sources: Temporaries, fault: Fault
) -> Operand:
    """The operand, named after the one tensor of the user's call that shares its device, and its dtype, or by what made it."""
    if not operand.stray or operand.expression or operand.held or operand.birth or fault.target is None:
        return operand
    there = [t for t in given if device_id(t.device) == operand.device]
    alike = [t for t in there if format_dtype(t.dtype) == operand.dtype]
    alike = alike if alike or fault.what == "dtype" else there  # a layer makes numbers of the mask that it is given
    target = torch.device(str(fault.target))
    if len(alike) == 1:
        named = operand_of(alike[0], operand.argument, names.expression(alike[0]), stray=True)
        return names.with_birth(named, alike[0], target, of_dtype=fault.what == "dtype")
    device = torch.device(str(operand.device))
    made_on = ((text, [m for m in each if isinstance(m, Maker) and m.makes_on(device)]) for text, each in sources)
    made = {text: found for text, found in made_on if found}
    if len(made) != 1 or fault.what == "dtype":
        return operand
    ((text, makers),) = made.items()
    at_hand = tuple(o.expression for o in fault.operands if not o.stray and o.expression and o.device == fault.target)
    return made_by(dataclasses.replace(operand, source=text), makers, target, at_hand)
