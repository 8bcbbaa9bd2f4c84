"""Find moves in the source: one whose result was dropped, one that forgets a tensor, and the moves of a module."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.object_fields import class_name, copy_items, dict_of, find_class_attribute
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.classes import functions_of
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, device_requested
from devwidget.capture.source_code.frames import name_in, other_cells
from devwidget.capture.source_code.source_files import definition_of, function_of, read_file, statements_of
from devwidget.capture.source_code.stack import is_users_function
from devwidget.capture.tensors import is_module, is_tensor
from devwidget.records.device import PLACING_METHODS
from devwidget.records.site import Site, cells
from devwidget.records.syntax import (
    assigns_self_attribute,
    name_of_called,
    nodes_in,
    own_lines,
    parsed_expression,
    parsed_statement,
    targets_of,
)

MOST_CALLS = 3
"""Functions that are followed, one from the next: `cuda` returns `self.to("cuda")`, and a function passes a module on."""


class DiscardedMove(NamedTuple):
    """A statement that moved a variable and dropped the result; `method` is `Graph.to` for an object, "" for a tensor."""

    site: Site | None = None
    method: str = ""


def find_discarded_move(frame: FrameType, text: str) -> DiscardedMove:
    """Return the statement that moved what an expression of a frame reads, or an object that the expression begins with."""
    scope = Scope(frame)
    for node in _prefixes(text):
        value = scope.value(node)
        for site in _moves_of(frame, ast.unparse(node), value):
            if is_tensor(value):
                return DiscardedMove(site)
            method = _method_of(site)
            if returns_copy(value, method):
                return DiscardedMove(site, f"{class_name(type(value))}.{method}")
    return DiscardedMove()


def find_forgetful_move(frames: Sequence[FrameType], tensor: torch.Tensor, target: torch.device) -> Site | None:
    """Return the line of an object's own move method that moved another of its tensors, but not this one."""
    for frame in frames:
        node = parsed_expression(name_in(frame, tensor))
        if isinstance(node, ast.Attribute):
            return _line_that_forgets(Scope(frame).value(node.value), node.attr, target)
        if node is not None:
            return None
    return None


def _line_that_forgets(owner: Any, forgotten: str, target: torch.device) -> Site | None:
    if owner is UNKNOWN or is_module(owner):
        return None
    fields = dict_of(owner)
    for function in functions_of(type(owner)):
        definition = definition_of(function.__code__) if function.__name__ in PLACING_METHODS else None
        for statement in statements_of(definition):
            moved = [name for name in fields if assigns_self_attribute(statement, name)]
            if forgotten in moved:
                return None
            if len(moved) == 1 and is_tensor(fields[moved[0]]) and fields[moved[0]].device == target:
                return statements.site_at(function.__code__.co_filename, statement.lineno, function.__name__)
    return None


def returns_copy(value: Any, method: str, calls: int = MOST_CALLS) -> bool:
    """Return whether a method returns another object than its own, as far as its source shows it."""
    if value is UNKNOWN or is_module(value) or not calls:
        return False
    function = find_class_attribute(type(value), method)
    node = function_of(function.__code__) if type(function) is FunctionType else None
    if node is None or not node.args.args:
        return False
    returned = [each.value for each in statements_of(node) if isinstance(each, ast.Return)]
    match returned[-1:]:
        case [ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=called))] if name == node.args.args[0].arg:
            return called == "__class__" or returns_copy(value, called, calls - 1)
        case [ast.Call()]:
            return True
        case [ast.Name(id=name)]:
            return name != node.args.args[0].arg
    return False


def _prefixes(text: str) -> Iterator[ast.expr]:
    """Yield `g.nodes[0]`, `g.nodes` and `g` for `g.nodes[0]`."""
    node = parsed_expression(text)
    while node is not None:
        yield node
        node = getattr(node, "value", None)


def _moves_of(frame: FrameType, name: str, value: Any) -> Iterator[Site]:
    """Yield the statement above the frame's line; for a variable of a notebook, the one of an earlier cell."""
    file = frame.f_code.co_filename
    site = statements.unkept_move(file, name, frame.f_lineno)
    if site is not None:
        yield site
        return
    if not other_cells(frame):
        return
    for variable in _global_names(frame, name, value):
        site = _move_in_cells(variable, but=file)
        if site is not None:
            yield site


def _global_names(frame: FrameType, name: str, value: Any) -> list[str]:
    """Return the name itself at top level; in a function, the notebook's names of the same object."""
    if frame.f_code.co_name == "<module>":
        return [name]
    if value is UNKNOWN:
        return []
    named = [each for each, other in copy_items(frame.f_globals) if other is value]
    texts = [each for each in named if type(each) is str]
    return [each for each in texts if not each.startswith("_")]


def _move_in_cells(name: str, but: str) -> Site | None:
    """Return the last cell's statement that moves a variable and drops the result; None if a later cell assigned it."""
    for file in reversed(cells()):
        site = statements.unkept_move(file, name, sys.maxsize)
        if site is not None and file != but:
            return site
        assigned = statements.assignment(file, name, sys.maxsize)
        if assigned is not None and assigned.function == "<module>":
            return None
    return None


def _method_of(site: Site) -> str:
    node = getattr(parsed_statement(site.text), "value", None)
    if isinstance(node, ast.Call):
        return name_of_called(node)
    return getattr(node, "attr", "")


class ModuleMove(NamedTuple):
    """A line that moves a module, and where to."""

    site: Site
    device: torch.device


def find_module_moves(frames: Sequence[FrameType], module: nn.Module) -> list[ModuleMove]:
    """Return the moves of a module that the top level of the program made or caused, in the order in which they are written.

    Args:
        frames: frames of the user, innermost first.
        module: a module that a variable at top level holds.
    """
    for frame in reversed(frames):
        name = name_in(frame, module) if frame.f_code.co_name == "<module>" else ""
        if name:
            return _list_moves(frame, name)
    return []


def _list_moves(frame: FrameType, name: str) -> list[ModuleMove]:
    scope, here, moves = Scope(frame), frame.f_code.co_filename, list[ModuleMove]()
    for file in [*other_cells(frame), here]:
        for node in statements_of(read_file(file).tree):
            if file == here and node.lineno >= frame.f_lineno:
                break
            if name in map(ast.unparse, targets_of(node)) and not _mentions(getattr(node, "value", None), name):
                moves = []  # another module from here on
            moves += _moves_in(file, node, name, scope, MOST_CALLS)
    return moves


def _mentions(node: ast.AST | None, name: str) -> bool:
    return name in map(ast.unparse, nodes_in(node, ast.expr))


def _moves_in(file: str, statement: ast.stmt, name: str, scope: Scope, calls: int) -> Iterator[ModuleMove]:
    lines = own_lines(statement)
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or node.lineno not in lines:
            continue
        device = device_requested(node, scope) if _is_moved(statement, node, name) else None
        if device is not None:
            yield ModuleMove(statements.site_at(file, statement.lineno), device)
        elif calls:
            yield from _moves_in_function(node, name, scope, calls - 1)


def _is_moved(statement: ast.stmt, call: ast.Call, name: str) -> bool:
    """Return whether a call is `model.to(device)`, or the one of `model = Net().to(device)`."""
    match call.func:
        case ast.Attribute(value=owner):
            is_built = getattr(statement, "value", None) is call and name in map(ast.unparse, targets_of(statement))
            return ast.unparse(owner) == name or is_built
    return False


def _moves_in_function(call: ast.Call, name: str, scope: Scope, calls: int) -> Iterator[ModuleMove]:
    """Yield the moves that a function of the user makes of the module that it is called with."""
    function = scope.value(call.func)
    node = definition_of(function.__code__) if is_users_function(function) else None
    if node is None:
        return
    names = [argument.arg for argument in node.args.args]
    passed = [*zip(names, call.args, strict=False), *((keyword.arg, keyword.value) for keyword in call.keywords)]
    inner = Scope.of_function(function)
    for parameter, value in passed:
        if parameter is not None and ast.unparse(value) == name:
            for statement in statements_of(node):
                yield from _moves_in(function.__code__.co_filename, statement, parameter, inner, calls)
