"""Find the lines that moved a module of a notebook or a script, also in functions that were called with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NamedTuple

import torch
from torch import nn

from devwidget.capture.source_code import statements
from devwidget.capture.source_code.expressions import Scope, device_requested
from devwidget.capture.source_code.frames import name_in
from devwidget.capture.source_code.source_files import definition_of, own_lines, read_file, statements_of
from devwidget.capture.source_code.stack import is_users_function
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import targets_of

MOST_CALLS = 3
"""Functions that pass a module on, one to the next."""


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
    others = [each for each in cells() if each != here and cell_label(here)]
    for file in [*others, here]:
        for node in statements_of(read_file(file).tree):
            if file == here and node.lineno >= frame.f_lineno:
                break
            if name in map(ast.unparse, targets_of(node)) and not _mentions(getattr(node, "value", None), name):
                moves = []  # another module from here on
            moves += _moves_in(file, node, name, scope, MOST_CALLS)
    return moves


def _mentions(node: ast.AST | None, name: str) -> bool:
    return node is not None and any(ast.unparse(each) == name for each in ast.walk(node) if isinstance(each, ast.expr))


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
