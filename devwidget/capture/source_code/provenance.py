"""Find by source which line gave a value to a variable of a living frame, for tensors that no recording saw created."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import torch

from devwidget.capture.object_fields import class_name, copy_items, dict_of, is_among
from devwidget.capture.source_code import classes, statements
from devwidget.capture.source_code.arguments import arguments_of
from devwidget.capture.source_code.expressions import Scope, argument_named, device_asked_for, factory_of, is_of_torch, means
from devwidget.capture.source_code.frames import holds, is_place, name_in, other_cells, path_of
from devwidget.capture.source_code.source_files import definition_of, is_outdated, read_file
from devwidget.capture.source_code.stack import locals_of, user_frames
from devwidget.capture.tensors import is_module, is_parameter, is_tensor, viewed_base
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import (
    defaults_of,
    name_of_called,
    names_in,
    nodes_in,
    parsed_expression,
    parsed_statement,
    targets_of,
)

MOST_STEPS = 16
Aspect = Literal["device", "dtype"]
"""Whether the question is about a tensor's device or its dtype."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The line that decided where a tensor is.

    Attributes:
        site: that line.
        tensors: the tensor and the tensors on the same device that it was computed from, as far as living frames show.
        call, op, direct: source of the call on that line, its function, and whether that is torch's own.
        partners: names of tensors on the right device that are available there.
        is_move: the call is a move or a cast.
    """

    site: Site | None
    tensors: tuple[torch.Tensor, ...] = ()
    call: str = ""
    op: str = ""
    direct: bool = False
    partners: tuple[str, ...] = ()
    is_move: bool = False

    def list_fields(self) -> dict[str, Any]:
        """Return the fields of an operand that say this."""
        return {
            "birth": self.site,
            "birth_call": self.call,
            "birth_op": self.op,
            "birth_direct": self.direct,
            "birth_partner": next(filter(str.isidentifier, self.partners), ""),
            "birth_partners": self.partners,
            "from_move": self.is_move,
        }


@dataclass(frozen=True, slots=True)
class _Assignment:
    """A line of a frame that assigned a value, and the relevant part of it."""

    frame: FrameType
    site: Site
    keys: tuple[Any, ...]
    value: ast.expr


def find_origin(
    frames: Sequence[FrameType],
    tensor: torch.Tensor,
    target: torch.device,
    aspect: Aspect = "device",
    given: Container[torch.Tensor] = (),
) -> Origin:
    """Follow a tensor back through the assignments of living frames, innermost first.

    Args:
        frames: user frames.
        tensor: the tensor to follow.
        target: the device that it should have been on.
        aspect: what is wrong with it; the tensors that it was computed from share it.
        given: tensors of the batch, whose device comes from no line if no frame shows one.
    """
    tensors, last = [tensor], None
    while len(tensors) < MOST_STEPS:
        assigned = _find_assignment(frames, tensors[-1], last)
        if assigned is None and last is not None and aspect == "device" and tensors[-1] in given:
            return Origin(None, tuple(tensors))
        if assigned is None:
            break
        last = assigned
        older = [each for each in _parents(assigned, tensors[-1], aspect) if not is_among(each, tensors)]
        if not older:
            break
        tensors.append(older[0])
    if last is None:
        return Origin(None, tuple(tensors))
    partners = _partners(last, target) if aspect == "device" else ()
    if last.keys:
        return Origin(_line_of_keyword(last) or last.site, tuple(tensors), partners=partners)
    call, op, direct = _call_of(last)
    return Origin(last.site, tuple(tensors), call, op, direct, partners, op in statements.MOVES)


def find_construction(frames: Iterable[FrameType], made: object) -> Site | None:
    """Return the line that built an object: it assigns a new one to the variable or to the attribute that holds it."""
    for frame in frames:
        text = name_in(frame, made)
        name = path_of(text)[0]
        if text.startswith("self."):
            site = _line_that_filled(frame, text.removeprefix("self."))
        else:
            site = next(_lines_that_assigned(frame, name, frame.f_lineno), None) if name else None
        if site is not None and statements.assigns_new(site.text, class_name(type(made))):
            return site
    return None


def _line_that_filled(frame: FrameType, attribute: str) -> Site | None:
    """Return the line that gave an attribute of `self` its value: one outside of the class replaces what the class assigns."""
    replaced = find_replacements(user_frames(frame), attribute)
    if replaced:
        return only(replaced)
    return classes.deciding_assignment(type(locals_of(frame).get("self")), attribute)


def find_replacements(frames: Iterable[FrameType], attribute: str) -> list[Site]:
    """Return the lines that assign an attribute of another object than `self`.

    They are in the files of these frames, or in the newest cell that has such a line.
    """
    found = list[Site]()
    for file in dict.fromkeys(frame.f_code.co_filename for frame in frames):
        if not cell_label(file):
            found += statements.replacements(file, attribute)
    of_cells = (list(statements.replacements(cell, attribute)) for cell in reversed(cells()))
    return found + next(filter(None, of_cells), [])


def only(sites: list[Site]) -> Site | None:
    """Return the line if it is the only one; nothing shows which of several counts."""
    if len(sites) == 1:
        return sites[0]
    return None


def _find_assignment(frames: Sequence[FrameType], tensor: torch.Tensor, last: _Assignment | None) -> _Assignment | None:
    """Return the line that named a tensor, in the innermost frame that did not get it from elsewhere."""
    for frame in frames:
        before = last.site.line if last is not None and last.frame is frame else frame.f_lineno
        text = name_in(frame, tensor)
        name, _ = path_of(text)
        if name in ("", "self") or is_outdated(frame.f_code):  # what `self` keeps is found through the model
            continue
        assigned = _find_assigned(frame, text, before, tensor)
        if assigned is None or _is_handed_on(assigned, tensor):  # `mask = self.mask`, `x, y = batch`
            continue
        if path_of(text)[1] and _has_empty_part(assigned.value):  # what is in it now came later
            return None
        return assigned
    return None


def _find_assigned(frame: FrameType, text: str, before: int, tensor: torch.Tensor) -> _Assignment | None:
    """Return the last line that can have assigned a tensor, or the default of an argument."""
    for site in _lines_that_assigned(frame, text, before):
        assigned = _read_assignment(frame, text, site)
        if assigned is None or not _asks_elsewhere(assigned, tensor):
            return assigned
    return _find_default(frame, text)


def _asks_elsewhere(assigned: _Assignment, tensor: torch.Tensor) -> bool:
    """Return whether a line asks for a device that the tensor is not on, so that it cannot have assigned the tensor."""
    asked = device_asked_for(assigned.value, Scope(assigned.frame))
    return asked is not None and not assigned.keys and not means(asked, tensor.device)


def _read_assignment(frame: FrameType, text: str, site: Site) -> _Assignment | None:
    statement, (name, keys) = parsed_statement(site.text, site.line), path_of(text)
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return None
    if keys and text in map(ast.unparse, targets_of(statement)):
        return _Assignment(frame, site, (), statement.value)
    for target in getattr(statement, "targets", ()):
        names = [ast.unparse(each) for each in getattr(target, "elts", ())]
        if name not in names:
            continue
        index = names.index(name)
        match statement.value:
            case ast.Tuple(elts=values) if index < len(values):  # `a, b = torch.ones(3), torch.zeros(3)`
                return _Assignment(frame, site, keys, values[index])
        return _Assignment(frame, site, (index, *keys), statement.value)
    return _Assignment(frame, site, keys, statement.value)


def _lines_that_assigned(frame: FrameType, text: str, before: int) -> Iterator[Site]:
    """Yield the lines above another that assigned `state['speed']`, then the variable that it begins with, last ones first.

    An argument has only lines of its function. A line in a branch that was not taken has assigned nothing.
    """
    code, (name, _) = frame.f_code, path_of(text)
    for written in dict.fromkeys((text, name)):
        sites = [*statements.assignments(code.co_filename, written, before)]
        cell = statements.cell_assignment(written) if not sites and name in frame.f_globals else None
        if cell is not None:
            sites.append(cell)
        for site in sites:
            is_own = name not in code.co_varnames or site.function == code.co_name
            if is_own and _may_have_run(frame, site, name, before):
                yield site


def _may_have_run(frame: FrameType, site: Site, name: str, before: int) -> bool:
    """Return False for a line in a branch that was not taken. A test of the variable itself says nothing: it has changed."""
    scope = Scope(frame)
    running = before if site.file == frame.f_code.co_filename else 0  # no branch of another cell is running
    for test, result in statements.conditions(site.file, site.line, running):
        if name not in names_in(test) and scope.truth(test) is (not result):
            return False
    return True


def _find_default(frame: FrameType, name: str) -> _Assignment | None:
    """Return the default of an argument that the caller omitted."""
    node, given = definition_of(frame.f_code), arguments_of(frame)
    if node is None or given is None or name in given:
        return None
    default = defaults_of(node).get(name)
    if default is None:
        return None
    site = statements.site_at(frame.f_code.co_filename, default.lineno, "<module>")
    return _Assignment(frame, site, (), default)


def _line_of_keyword(assigned: _Assignment) -> Site | None:
    """Return the line that assigned `w` in `loss = nn.CrossEntropyLoss(weight=w)`, for its `weight`."""
    argument = argument_named(assigned.value, str(assigned.keys[-1]))
    if isinstance(argument, ast.Name):
        return statements.assignment(assigned.site.file, argument.id, assigned.site.line)
    return None


def _is_handed_on(assigned: _Assignment, tensor: torch.Tensor) -> bool:
    """Return whether the assigned expression is a place that already has the tensor."""
    if isinstance(assigned.value, ast.Tuple | ast.List):
        return False
    if assigned.keys and is_place(assigned.value):  # `state = self.weight.state` has `state.code` from there
        return True
    return holds(Scope(assigned.frame).value(assigned.value), tensor)


def _parents(assigned: _Assignment, tensor: torch.Tensor, aspect: Aspect) -> list[torch.Tensor]:
    """Return what a value was computed from and shares its device with; for an activation, the layer's weights."""
    scope = Scope(assigned.frame)
    found = [*scope.leaves(assigned.value), *viewed_base(tensor)]  # of `ids = ids.unsqueeze(0)` what a caller gave
    alike, weights = [], 0
    for each in found:
        if getattr(each, aspect) == getattr(tensor, aspect):
            alike.append(each)
            weights += is_parameter(each)
    called = [scope.value(node.func) for node in nodes_in(assigned.value, ast.Call)]
    if weights and (weights < len(found) or any(map(is_module, called))):
        return []
    return alike


def _call_of(assigned: _Assignment) -> tuple[str, str, bool]:
    """Return the call that decided: a factory anywhere in the expression, else the whole expression."""
    value, scope = assigned.value, Scope(assigned.frame)
    factory = factory_of(value, scope)
    if factory is not None:
        return factory.text, factory.name, True
    if not isinstance(value, ast.Call):
        return "", "", False
    name = name_of_called(value)
    return ast.unparse(value), name, is_of_torch(scope.value(value.func), name)


def _partners(assigned: _Assignment, target: torch.device) -> tuple[str, ...]:
    """Return tensors on the right device that the function has before that line, its arguments first."""
    site, code = assigned.site, assigned.frame.f_code
    file, scope = read_file(code.co_filename), definition_of(code)
    if scope is None or site.function != scope.name:
        return ()
    found, arguments = [], code.co_varnames[: code.co_argcount]
    for name, value in locals_of(assigned.frame).items():
        lines = file.assigned_lines(scope, name)
        comes_later = name not in arguments and bool(lines) and lines[0] >= site.line
        if is_tensor(value) and value.device == target and not comes_later:
            found.append(name)
    return tuple(found)


# Lists that a line fills.


def find_append(frames: Sequence[FrameType], tensor: torch.Tensor) -> Site | None:
    """Return the one statement that appends to the list which a frame has the tensor in.

    Args:
        frames: frames of the user, innermost first.
        tensor: an item of the list.
    """
    for frame in frames:
        name = _name_of_list(frame, tensor)
        found = list(_appends(frame, name)) if name else []
        if len(found) == 1:
            return found[0]
    return None


def _name_of_list(frame: FrameType, tensor: torch.Tensor) -> str:
    match parsed_expression(name_in(frame, tensor)):
        case ast.Subscript(value=owner) if type(Scope(frame).value(owner)) is list:
            return ast.unparse(owner)
    for name, value in copy_items(dict_of(locals_of(frame).get("self"))):
        if type(value) is list and is_among(tensor, value):
            return f"self.{name}"
    return ""


def _has_empty_part(value: ast.expr) -> bool:
    """Return whether a literal such as `{"loss": []}` has an empty container."""
    for part in ast.walk(value):
        match part:
            case ast.List(elts=[]) | ast.Dict(keys=[]):
                return True
    return False


def _appends(frame: FrameType, name: str) -> Iterator[Site]:
    for each in (frame.f_code.co_filename, *other_cells(frame)):
        for node in read_file(each).statements:
            match node:
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[_])):
                    if ast.unparse(owner) == name:
                        yield statements.site_at(each, node.lineno)
