"""Operands that were computed on the failing line, and are gone: the call of torch on that line which made them."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator
from types import FrameType

import torch

from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.faults import operand_names
from devwidget.capture.faults.call_arguments import arguments
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.recording.descriptions import fault_at, lost_operand, operand_of
from devwidget.capture.recording.event_log import device_id, format_dtype
from devwidget.capture.source_code.call_sites import call_text, line_of, raw_site, site_of, to_site
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, failing_call, operands_of
from devwidget.capture.source_code.factories import FactoryCall, factory_of
from devwidget.capture.tensors import is_tensor, tensors_in
from devwidget.records.device import DEVICE_NAME
from devwidget.records.errors import message
from devwidget.records.syntax import parsed_expression, parsed_statement
from devwidget.records.trace import Fault, Operand

_MOST = re.compile(rf"different from other tensors on ({DEVICE_NAME.pattern})")
_INDEXED = re.compile("same device as the indexed tensor")


def made_there(context: ErrorContext) -> None:
    """The side that is gone was made on the failing line."""
    user = context.user
    if user is None:
        return
    there = list(_find_operands(context, user))
    named, target = devices_named(context)
    target = target or _home_of_indexed(context, there)
    if target is None:
        return
    others = [each for each in there if each.device == device_id(target)]
    at_hand = tuple(each.expression for each in others if each.expression)
    wrong = [device for device in named if device != target]
    expressions = _lost_expressions(user)
    strays = _describe_kept(context, user, expressions, wrong, target)
    if not strays:
        lost = [_describe_lost(context, user, node, wrong, target, at_hand) for node in expressions]
        strays = [operand for operand in lost if operand is not None]
    strays = strays or _other_side(context, user, there, wrong, target)
    if not strays:
        return
    call, raw = failing_call(user), raw_site(user)
    name = getattr(call.func, "__name__", "operation") if call is not None else "operation"
    fault = fault_at(context.state.tracker, "operands", name, raw, error=context.error_text, target=device_id(target),
                     operands=(*others, *strays), expression=call_text(raw))  # fmt: skip
    context.state.log.log_fault(fault)


def _home_of_indexed(context: ErrorContext, there: list[Operand]) -> torch.device | None:
    """The one accelerator of the operands that are left, where the message names only the tensor that was read."""
    homes = {torch.device(str(each.device)) for each in there if each.device.is_accelerator}
    return homes.pop() if len(homes) == 1 and _INDEXED.search(message(context.error)) else None


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


def _lost_expressions(frame: FrameType) -> list[ast.expr]:
    """The operands of the call that a frame was making whose values are gone."""
    scope = Scope(frame)
    return [item for item in _operand_expressions(frame) if scope.value(item) is UNKNOWN]


def _operand_expressions(frame: FrameType) -> list[ast.expr]:
    """The operands of the call that a frame was making, with the items of tuples and lists."""
    raw = site_of(frame)
    text = call_text(raw)
    node = parsed_expression(text, line_of(raw)) or parsed_statement(text.strip(), line_of(raw))
    items: list[ast.expr] = []
    for operand in operands_of(node):
        items += operand.elts if isinstance(operand, ast.List | ast.Tuple) else [operand]
    return items


def _describe_kept(
    context: ErrorContext, user: FrameType, expressions: list[ast.expr], wrong: list[torch.device], target: torch.device
) -> list[Operand]:
    """The values that are gone and were on a wrong device, where births were watched as the call failed."""
    gone = [node for node in expressions if _names_something(node)]
    kept = _find_kept(context, user)
    if len(gone) != len(kept):
        return []
    names = operand_names.Names(context.state, user)
    found = []
    for node, tensor in zip(gone, kept, strict=True):
        if tensor.device in wrong and tensor.dim():
            text = ast.unparse(node)
            lost = lost_operand(device_id(tensor.device), text, "", stray=True, source=text)
            found.append(names.with_birth(lost, tensor, target))
    return found


def _find_kept(context: ErrorContext, user: FrameType) -> list[torch.Tensor]:
    """The operands of the failing call that no expression of its line gives any more, in their order."""
    call = failing_call(user)
    there = [tensor for _, tensor in arguments(call.func, call.args, call.kwargs)] if call is not None else []
    scope = Scope(user)
    there += [value for item in _operand_expressions(user) if is_tensor(value := scope.value(item))]
    kept = context.state.births.operands_of(context.error)
    return [tensor for tensor in kept if not any(tensor is each for each in there)]


def _describe_lost(
    context: ErrorContext,
    user: FrameType,
    node: ast.expr,
    wrong: list[torch.device],
    target: torch.device,
    at_hand: tuple[str, ...],
) -> Operand | None:
    """A value that is gone, if the line tells that it was on a wrong device: by a factory, or by what it was computed from."""
    text, scope = ast.unparse(node), Scope(user)
    factory = factory_of(node, scope)
    if factory is not None:
        if factory.device not in wrong:
            return None
        lost = lost_operand(device_id(factory.device), text, "", stray=True, source=text)
        return _made_by(lost, factory, user, at_hand)
    for tensor in scope.leaves(node):
        if tensor.device in wrong and tensor.dim():
            lost = lost_operand(device_id(tensor.device), text, "", stray=True, source=text)
            return operand_names.Names(context.state, user).with_birth(lost, tensor, target)
    return None


def _other_side(
    context: ErrorContext, user: FrameType, there: list[Operand], wrong: list[torch.device], target: torch.device
) -> list[Operand]:
    """The one operand of which nothing is known, where all others are on one of the two devices that met."""
    if len(context.below) > 1:  # what a library met below may be a tensor of its own
        return []
    scope = Scope(user)
    lost = [node for node in _lost_expressions(user) if _names_something(node)]
    unknown = [node for node in lost if next(scope.leaves(node), None) is None]
    homes = {each.device for each in there if each.shape or each.device.is_accelerator}
    if len(unknown) != 1 or len(wrong) != 1 or homes != {device_id(target)}:
        return []
    text = ast.unparse(unknown[0])
    return [lost_operand(device_id(wrong[0]), text, "", stray=True, source=text)]


def _names_something(node: ast.expr) -> bool:
    """False for a number such as `-1e9`, which is on no device."""
    return any(isinstance(part, ast.Name) for part in ast.walk(node))


def _made_by(operand: Operand, factory: FactoryCall, user: FrameType, at_hand: tuple[str, ...]) -> Operand:
    """The operand, made by a factory on the line of a frame, where other tensors are at hand on the right device."""
    return dataclasses.replace(
        operand,
        birth=to_site(site_of(user)),
        birth_call=factory.text,
        birth_op=factory.name,
        birth_direct=True,
        birth_partner=next(iter(at_hand), ""),
        birth_partners=at_hand,
    )


def trace_back(context: ErrorContext) -> None:
    """A stray that has no name in the user's frame was computed on the failing line: from what?"""
    user = context.user
    call = failing_call(user) if user is not None else None
    if user is None or call is None:
        return
    given = list(tensors_in((call.args, call.kwargs)))
    faults = context.state.log.faults
    faults[:] = [_with_lost_names(context, user, fault, given) for fault in faults]


def _with_lost_names(context: ErrorContext, user: FrameType, fault: Fault, given: list[torch.Tensor]) -> Fault:
    if fault.target is None:
        return fault
    names, target = operand_names.Names(context.state, user), torch.device(str(fault.target))
    kept = context.state.births.operands_of(context.error)
    at_hand = tuple(o.expression for o in fault.operands if not o.stray and o.expression and o.device == fault.target)
    operands = []
    for operand in fault.operands:
        if operand.stray and not (operand.expression or operand.held or operand.birth):
            source, itself = _find_source(operand, given, of_dtype=fault.what == "dtype"), _find_itself(operand, kept)
            if itself is not None:
                operand = names.with_birth(operand, itself, target, of_dtype=fault.what == "dtype")
            elif source is not None:
                named = operand_of(source, operand.argument, names.expression(source), stray=True)
                operand = names.with_birth(named, source, target, of_dtype=fault.what == "dtype")
            elif fault.what != "dtype":
                operand = _made_on_line(operand, user, at_hand)
        operands.append(operand)
    return dataclasses.replace(fault, operands=tuple(operands))


def _find_itself(operand: Operand, kept: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """The one tensor that was kept and is as an operand."""
    alike = [each for each in kept if device_id(each.device) == operand.device and format_dtype(each.dtype) == operand.dtype]
    return alike[0] if len(alike) == 1 else None


def _find_source(operand: Operand, given: list[torch.Tensor], *, of_dtype: bool) -> torch.Tensor | None:
    """The one tensor of the user's call that shares the device of an operand, and its dtype."""
    there = [tensor for tensor in given if device_id(tensor.device) == operand.device]
    alike = [tensor for tensor in there if format_dtype(tensor.dtype) == operand.dtype]
    if not alike and not of_dtype:  # a layer makes numbers of the mask that it is given
        alike = there
    return alike[0] if len(alike) == 1 else None


def _made_on_line(operand: Operand, user: FrameType, at_hand: tuple[str, ...]) -> Operand:
    """The operand with the one factory on the failing line whose result was where it is."""
    made = [(node, factory_of(node, Scope(user))) for node in _lost_expressions(user)]
    there = [(node, each) for node, each in made if each is not None and device_id(each.device) == operand.device]
    if len(there) != 1:
        return operand
    ((node, factory),) = there
    return _made_by(dataclasses.replace(operand, source=ast.unparse(node)), factory, user, at_hand)
