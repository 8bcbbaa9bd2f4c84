"""Find operands that were computed on the failing line and no longer exist, by the torch call that made them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from types import FrameType

import torch

from devwidget.capture.explain.error_context import ErrorContext
from devwidget.capture.faults.call_arguments import arguments
from devwidget.capture.faults.healing import is_accelerator
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.object_fields import is_among
from devwidget.capture.recording.descriptions import fault_at, lost_operand, operand_of
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.source_code.call_sites import call_text, raw_site, site_of, to_site
from devwidget.capture.source_code.expressions import (
    UNKNOWN,
    Scope,
    device_requested,
    factory_of,
    failing_call,
    means,
    operands_of,
    running_node,
)
from devwidget.capture.source_code.provenance import Origin
from devwidget.capture.source_code.stack import is_users_code
from devwidget.capture.source_code.written_moves import find_discarded_move
from devwidget.capture.tensors import is_tensor
from devwidget.records.device import DEVICE_NAME
from devwidget.records.errors import message
from devwidget.records.syntax import names_in, parsed_statement
from devwidget.records.trace import Operand

_ALLOWED = re.compile(r"either on (cpu|the CPU) or", re.IGNORECASE)
"""The message on an index names the CPU as a device that would be right."""
_MOST = re.compile(rf"different from other tensors on ({DEVICE_NAME.pattern})")


def made_there(context: ErrorContext) -> None:
    """Report the operand that was created on the failing line and no longer exists."""
    user, (named, target) = context.user, devices_named(context)
    if user is None or not named:
        return
    call, scope, lost = failing_call(user), Scope(user), []
    tensors = arguments(call.func, call.args, call.kwargs) if call is not None else []
    for expression in _operand_expressions(user):
        value = scope.value(expression)
        if is_tensor(value):
            tensors.append(("", value))
        elif value is UNKNOWN and names_in(expression):  # `-1e9` is on no device
            lost.append(expression)
    if target is None:  # an index names the tensor that was read alone
        target = next((tensor.device for _, tensor in tensors if is_accelerator(tensor.device)), None)
    if target is None:
        return
    wrong = [device for device in named if device != target]
    failing = _FailingLine(context, user, wrong, target, _name_of_call(user), tensors, lost)
    strays = failing.find_kept() or failing.find_factories() or failing.find_other_side()
    if strays:
        failing.write_fault(strays)


def unmoved_object(context: ErrorContext) -> None:
    """Report an object that a line asked to move, without the copy that this gave, if the message names both devices."""
    named, _ = devices_named(context)
    for frame in reversed(context.frames):
        running = running_node(frame) if is_users_code(frame.f_code) and len(named) == 2 else None
        for name in dict.fromkeys(names_in(running) if running is not None else ()):
            move = find_discarded_move(frame, name)
            if move is None or not move.method:
                continue
            requested = device_requested(getattr(parsed_statement(move.site.text), "value", None), Scope(frame))
            there, away = named if requested is not None and means(requested, named[0]) else named[::-1]
            if requested is None or not means(requested, there) or means(requested, away):
                continue
            operand = lost_operand(device_id(away), name, name, stray=True)
            operand = replace(operand, ineffective=move.site, ineffective_method=move.method)
            _FailingLine(context, frame, [away], there, _name_of_call(frame), [], []).write_fault([operand])
            return


def _name_of_call(frame: FrameType) -> str:
    call = failing_call(frame)
    return getattr(call.func, "__name__", "operation") if call is not None else "operation"


def devices_named(context: ErrorContext) -> tuple[list[torch.device], torch.device | None]:
    """Return the devices in the message, and the accelerator that the call belongs on."""
    text = _ALLOWED.sub("either", message(context.error))
    named = list(map(torch.device, dict.fromkeys(DEVICE_NAME.findall(text))))
    for device in (*map(torch.device, _MOST.findall(text)), *named):
        if is_accelerator(device):
            return named, device
    return named, None


@dataclass(frozen=True, slots=True)
class _FailingLine:
    """The line that failed, and the remaining operands of its call.

    Attributes:
        context: the exception.
        user: the frame of the line.
        wrong: devices of misplaced operands.
        target: the device that they should have been on.
        name: name of the called function.
        tensors: operands that still exist, by the operator's names.
        lost: expressions of operands that no longer exist.
    """

    context: ErrorContext
    user: FrameType
    wrong: list[torch.device]
    target: torch.device
    name: str
    tensors: list[tuple[str, torch.Tensor]]
    lost: list[ast.expr]

    def find_kept(self) -> list[Operand]:
        """Return lost operands that were on a wrong device, if tensor creation was watched when the call failed."""
        known = [tensor for _, tensor in self.tensors]
        kept = [each for each in self.context.state.births.operands_of(self.context.error) if not is_among(each, known)]
        if len(self.lost) != len(kept):
            return []
        names, strays = Names(self.context.state, self.user), []
        for node, tensor in zip(self.lost, kept, strict=True):
            if tensor.device in self.wrong and tensor.dim():
                strays.append(names.with_birth(_stray(node, tensor.device), tensor, self.target))
        return strays

    def find_factories(self) -> list[Operand]:
        """Return the operands that a factory on the line itself created on a wrong device."""
        scope, site, strays = Scope(self.user), to_site(site_of(self.user)), []
        at_hand = tuple(each.expression for each in self._operands_at_home() if each.expression)
        for node in self.lost:
            factory = factory_of(node, scope)
            if factory is None or factory.device not in self.wrong:
                continue
            origin = Origin(site, (), factory.text, factory.name, direct=True, partners=at_hand)
            strays.append(origin.add_to(_stray(node, factory.device)))
        return strays

    def find_other_side(self) -> list[Operand]:
        """Return the one unknown operand, if all others are on one of the two devices that were mixed."""
        if len(self.context.below) > 1:  # what a library met below may be a tensor of its own
            return []
        scope = Scope(self.user)
        unknown = [node for node in self.lost if next(scope.leaves(node), None) is None]
        moved = [device_requested(each, scope) for node in unknown for each in ast.walk(node)]
        wrong = self.wrong or [device for device in moved if device is not None and device != self.target]
        homes = {tensor.device for _, tensor in self.tensors if tensor.dim() or is_accelerator(tensor.device)}
        if len(unknown) != 1 or len(wrong) != 1 or homes != {self.target}:
            return []
        return [_stray(unknown[0], wrong[0])]

    def _operands_at_home(self) -> list[Operand]:
        names = Names(self.context.state, self.user)
        home = []
        for label, tensor in self.tensors:
            if label and tensor.device == self.target:
                home.append(operand_of(tensor, label, names.expression(tensor)))
        return home

    def write_fault(self, strays: list[Operand]) -> None:
        raw = raw_site(self.user)
        fault = fault_at(
            self.context.state.tracker,
            "operands",
            self.name,
            raw,
            error=self.context.error_text,
            target=device_id(self.target),
            operands=(*self._operands_at_home(), *strays),
            expression=call_text(raw),
        )
        self.context.state.log.log_fault(fault)


def _operand_expressions(frame: FrameType) -> list[ast.expr]:
    """Return the operands of the call of a frame, with the items of tuples and lists."""
    items: list[ast.expr] = []
    for operand in operands_of(running_node(frame)):
        if isinstance(operand, ast.List | ast.Tuple):
            items += operand.elts
        else:
            items.append(operand)
    return items


def _stray(node: ast.expr, device: torch.device) -> Operand:
    text = ast.unparse(node)
    return lost_operand(device_id(device), text, "", stray=True, source=text)
