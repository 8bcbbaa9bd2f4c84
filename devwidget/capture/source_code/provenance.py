"""Lineage by source: which line gave a value to a variable of a frame that still runs, for what no recording saw being made."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import torch

from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import class_name
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.arguments import arguments_of
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.expressions import Scope, is_of_torch
from devwidget.capture.source_code.factories import factory_of
from devwidget.capture.source_code.frames import holds, name_in, path_of
from devwidget.capture.source_code.source_files import definition_of, statements_of
from devwidget.capture.source_code.stack import user_frame
from devwidget.capture.tensors import is_parameter, is_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import name_of_called, names_in, parsed_statement, targets_of

MOST_STEPS = 16
Aspect = Literal["device", "dtype"]
"""What is asked of a tensor: who decided where it is, or who decided its dtype."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The assignment that decided where a tensor is, as far as the frames that still exist tell it.

    Attributes:
        site: that line.
        tensors: the tensor and those on the same device that it was computed from.
        call, op, direct: source of the call on that line, its function, and whether that is torch's own.
        partners: names of tensors on the right device that are at hand there.
    """

    site: Site | None
    tensors: tuple[torch.Tensor, ...]
    call: str = ""
    op: str = ""
    direct: bool = False
    partners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Assignment:
    """A line of a frame that assigned a value, and which part of it is meant."""

    frame: FrameType
    name: str
    site: Site
    keys: tuple[Any, ...]
    value: ast.expr


def find_origin(frames: Sequence[FrameType], tensor: torch.Tensor, target: torch.device, aspect: Aspect = "device") -> Origin:
    """Follow a tensor back through the assignments of living frames, innermost first.

    Args:
        frames: user frames.
        tensor: whose story.
        target: where it should have been.
        aspect: what is wrong with it, which those that it was computed from share.
    """
    tensors: list[torch.Tensor] = [tensor]
    last: _Assignment | None = None
    while len(tensors) < MOST_STEPS:
        assigned = _find_assignment(frames, tensors[-1], last, aspect)
        if assigned is None:
            break
        last = assigned
        older = [each for each in _parents(assigned, tensor, aspect) if not any(each is known for known in tensors)]
        if not older:
            break
        tensors.append(older[0])
    if last is None:
        return Origin(None, tuple(tensors))
    if last.keys:
        return Origin(_line_of_keyword(last) or last.site, tuple(tensors), partners=_partners(last, target))
    return Origin(last.site, tuple(tensors), *_call_of(last), _partners(last, target))


def find_construction(frames: Iterable[FrameType], made: object) -> Site | None:
    """The line of a living frame that built an object: it assigns a call of its class to the variable that holds it."""
    for frame in frames:
        name = path_of(name_in(frame, made))[0]
        if name:
            site = _line_that_assigned(frame, name, frame.f_lineno)
        else:
            site = None
        if site is not None and statements.assigned_call(site.text)[1] == class_name(type(made)):
            return site
    return None


def _find_assignment(
    frames: Sequence[FrameType], tensor: torch.Tensor, last: _Assignment | None, aspect: Aspect
) -> _Assignment | None:
    """The line that gave a tensor its name, in the innermost frame in which it was not handed on from elsewhere."""
    for frame in frames:
        before = last.site.line if last is not None and last.frame is frame else frame.f_lineno
        text = name_in(frame, tensor)
        name, _ = path_of(text)
        if name in ("", "self"):  # what `self` keeps is found through the model
            continue
        assigned = _assigned_above(frame, text, before)
        while assigned is not None and aspect == "device" and _made_elsewhere(assigned, tensor.device):
            assigned = _assigned_above(frame, text, assigned.site.line)  # that branch did not run
        if assigned is None:
            assigned = _find_default(frame, text)
        if assigned is None or _is_handed_on(assigned, tensor):  # `mask = self.mask`, `x, y = batch`
            continue
        if _is_empty(assigned.value):
            return None
        return assigned
    return None


def _assigned_above(frame: FrameType, text: str, before: int) -> _Assignment | None:
    return _read_assignment(frame, text, _line_that_assigned(frame, text, before))


def _read_assignment(frame: FrameType, text: str, site: Site | None) -> _Assignment | None:
    if site is not None:
        statement = parsed_statement(site.text, site.line)
    else:
        statement = None
    if site is None or not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return None
    name, keys = path_of(text)
    if keys and text in map(ast.unparse, targets_of(statement)):
        return _Assignment(frame, name, site, (), statement.value)
    for target in getattr(statement, "targets", ()):
        if isinstance(target, ast.Tuple | ast.List):
            names = list(map(ast.unparse, target.elts))
        else:
            names = []
        if name not in names:
            continue
        index = names.index(name)
        match statement.value:
            case ast.Tuple(elts=values) if index < len(values):  # `a, b = torch.ones(3), torch.zeros(3)`
                return _Assignment(frame, name, site, keys, values[index])
        return _Assignment(frame, name, site, (index, *keys), statement.value)
    return _Assignment(frame, name, site, keys, statement.value)


def _made_elsewhere(assigned: _Assignment, device: torch.device) -> bool:
    """Whether what a line computes with is all on another device than its result, so that it has not made that one."""
    if assigned.keys:
        return False
    scope = Scope(assigned.frame)
    factory = factory_of(assigned.value, scope)
    devices = {each.device for each in scope.leaves(assigned.value) if each.dim()}
    if factory is not None:
        devices.add(factory.device)
    return bool(devices) and device not in devices


def _line_that_assigned(frame: FrameType, text: str, before: int) -> Site | None:
    """The last line above another that assigns `state['speed']`, else the variable that an expression begins with.

    An argument has no line but those of its function.
    """
    code, (name, _) = frame.f_code, path_of(text)
    for written in dict.fromkeys((text, name)):
        site = statements.assignment(code.co_filename, written, before)
        if site is None and name in frame.f_globals:
            site = statements.cell_assignment(written)
        if site is not None and (name not in code.co_varnames or site.function == code.co_name):
            return site
    return None


def _find_default(frame: FrameType, name: str) -> _Assignment | None:
    """What a function says for an argument that its caller left out."""
    node, given = definition_of(frame.f_code), arguments_of(frame)
    if node is None or given is None or name in given:
        return None
    parameters = [*node.args.posonlyargs, *node.args.args]
    last_ones = zip(parameters[::-1], node.args.defaults[::-1], strict=False)
    for parameter, default in (*last_ones, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)):
        if parameter.arg == name and default is not None:
            site = statements.site_at(frame.f_code.co_filename, default.lineno, "<module>")
            return _Assignment(frame, name, site, (), default)
    return None


def _line_of_keyword(assigned: _Assignment) -> Site | None:
    """The line that assigned `w`, where `loss = nn.CrossEntropyLoss(weight=w)` was built and its `weight` is asked for."""
    if not isinstance(assigned.value, ast.Call):
        return None
    for keyword in assigned.value.keywords:
        if keyword.arg == assigned.keys[-1] and isinstance(keyword.value, ast.Name):
            return statements.assignment(assigned.site.file, keyword.value.id, assigned.site.line)
    return None


def _is_handed_on(assigned: _Assignment, tensor: torch.Tensor) -> bool:
    """Whether the assigned expression is a place that has the tensor already."""
    if isinstance(assigned.value, ast.Tuple | ast.List):
        return False
    return holds(Scope(assigned.frame).value(assigned.value), tensor)


def _is_empty(value: ast.expr) -> bool:
    """`parts = []`: what is in it now came later."""
    match value:
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
    return False


def _parents(assigned: _Assignment, tensor: torch.Tensor, aspect: Aspect) -> list[torch.Tensor]:
    """What a value was computed from and shares its place with; an activation is where its layer's weights are."""
    scope = Scope(assigned.frame)
    found = [*scope.leaves(assigned.value), *_given_by_caller(assigned)]
    alike = [each for each in found if getattr(each, aspect) == getattr(tensor, aspect)]
    weights = [each for each in alike if is_parameter(each)]
    if weights and (len(weights) < len(found) or _calls_module(assigned.value, scope)):
        return []
    return alike


def _given_by_caller(assigned: _Assignment) -> list[torch.Tensor]:
    """What the caller gave for an argument that the line replaces: `ids = ids.unsqueeze(0)`."""
    above = user_frame(assigned.frame.f_back)
    if above is None or assigned.name not in names_in(assigned.value):
        return []
    written = (arguments_of(assigned.frame) or {}).get(assigned.name)
    if written is not None:
        value = Scope(above).value(written)
    else:
        value = None
    if is_tensor(value):
        return [value]
    return []


def _calls_module(value: ast.expr, scope: Scope) -> bool:
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(is_module(scope.value(call.func)) for call in calls)


def _call_of(assigned: _Assignment) -> tuple[str, str, bool]:
    """The call that decided: a factory, wherever it stands in the expression, else the whole of it."""
    value, scope = assigned.value, Scope(assigned.frame)
    factory = factory_of(value, scope)
    if factory is not None:
        return factory.text, factory.name, True
    if not isinstance(value, ast.Call):
        return "", "", False
    name = name_of_called(value)
    return ast.unparse(value), name, is_of_torch(scope.value(value.func), name)


def _partners(assigned: _Assignment, target: torch.device) -> tuple[str, ...]:
    """Tensors on the right device that the function has before that line, its arguments first."""
    frame, site = assigned.frame, assigned.site
    code, variables = frame.f_code, locals_of(frame)
    if site.function != code.co_name or site.function == "<module>":
        return ()
    names = dict.fromkeys([*code.co_varnames[: code.co_argcount], *_loop_variables(frame, site)])
    names |= dict.fromkeys(name for name in variables if _is_assigned_above(frame, name, site))
    return tuple(name for name in names if is_tensor(held := variables.get(name)) and held.device == target)


def _loop_variables(frame: FrameType, site: Site) -> Iterator[str]:
    """The variables of the loops around a line."""
    node = definition_of(frame.f_code)
    for loop in statements_of(node) if node is not None else ():
        if isinstance(loop, ast.For) and loop.lineno < site.line <= (loop.end_lineno or 0):
            yield from names_in(loop.target)


def _is_assigned_above(frame: FrameType, name: str, site: Site) -> bool:
    found = statements.assignment(frame.f_code.co_filename, name, site.line)
    return found is not None and found.function == site.function
