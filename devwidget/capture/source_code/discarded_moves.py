"""Find a move whose result was dropped: of a tensor, or of an object that holds it and whose `to` returns a copy."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import class_name, copy_items, find_class_attribute
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.expressions import UNKNOWN, Scope
from devwidget.capture.source_code.source_files import Function, function_of, statements_of
from devwidget.capture.tensors import is_tensor
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import name_of_called, parsed_expression, parsed_statement, targets_of

MOST_CALLS = 3
"""Methods of one object that are followed: `cuda` returns `self.to("cuda")`."""


class DiscardedMove(NamedTuple):
    """A statement that moved a variable and dropped the result; `method` is `Graph.to` for an object, "" for a tensor."""

    site: Site
    method: str


def find_discarded_move(frame: FrameType, text: str) -> DiscardedMove | None:
    """Return the statement that moved what an expression of a frame reads, or an object that the expression begins with."""
    scope = Scope(frame)
    for node in _prefixes(text):
        value = scope.value(node)
        for site in _moves_of(frame, ast.unparse(node), value):
            if is_tensor(value):
                return DiscardedMove(site, "")
            method = _method_of(site)
            if returns_copy(value, method):
                return DiscardedMove(site, f"{class_name(type(value))}.{method}")
    return None


def returns_copy(value: Any, method: str, calls: int = MOST_CALLS) -> bool:
    """Return whether a method returns another object and leaves its own unchanged, as far as its source shows it."""
    if value is UNKNOWN or is_module(value) or not calls:
        return False
    function = find_class_attribute(type(value), method)
    node = function_of(function.__code__) if type(function) is FunctionType else None
    if node is None or not node.args.args:
        return False
    own, results = node.args.args[0].arg, list[ast.expr]()
    for statement in statements_of(node):
        if _changes(statement, own):
            return False
        if isinstance(statement, ast.Return) and statement.value is not None:
            results.append(statement.value)
    if not results:
        return False
    match results[-1]:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=called)) if name == own:
            return called == "__class__" or returns_copy(value, called, calls - 1)
        case ast.Call():
            return True
        case ast.Name(id=name):
            return name != own and not _is_other_name(node, name, own)
    return False


def _changes(statement: ast.stmt, own: str) -> bool:
    """Return whether a statement assigns a part of an object, or calls one of its methods for its effect alone."""
    for target in targets_of(statement):
        if not isinstance(target, ast.Name) and _root(target) == own:
            return True
    match statement:
        case ast.Expr(value=ast.Call(func=function)):
            return _root(function) == own or ast.unparse(function) == "setattr"
    return False


def _is_other_name(node: Function, name: str, own: str) -> bool:
    for statement in statements_of(node):
        match statement:
            case ast.Assign(value=ast.Name(id=value)) if value == own:
                if name in map(ast.unparse, targets_of(statement)):
                    return True
    return False


def _root(node: ast.expr) -> str:
    """Return `g` for `g.nodes['x'].data`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        return node.id
    return ""


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
    if not cell_label(file) and frame.f_globals is not vars(sys.modules["__main__"]):
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
    return [each for each in named if type(each) is str and not each.startswith("_")]


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
