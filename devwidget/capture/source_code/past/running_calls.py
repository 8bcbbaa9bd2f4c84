"""Running calls: a frame as it was at a line above the one where it stands, and what its caller wrote for its parameters."""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import is_scalar, items_of
from devwidget.capture.source_code.call_sites import call_text, is_library, line_of, locals_of, site_of, to_site
from devwidget.capture.source_code.definitions import definition_around, statements_of
from devwidget.capture.source_code.expressions import UNKNOWN, Scope
from devwidget.capture.source_code.past.past_calls import Argument, Function, PastCall, callee, definition_of, given_by
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression, targets_of


class RunningCall(PastCall):
    """A call that still runs, as it was at a line above: what has been assigned since is not what it was.

    Args:
        frame: of the call.
        node: its definition.
        given: what its caller wrote; None if that is not known.
        line: where it stood; what the frame's own line reads is there.
    """

    def __init__(self, frame: FrameType, node: Function, given: dict[str, Argument] | None, line: int) -> None:
        later = [part for each in statements_of(node) if each.lineno >= line for part in targets_of(each)]
        gone = {part.id for part in later if isinstance(part, ast.Name)}
        self._locals = {name: UNKNOWN if name in gone else value for name, value in locals_of(frame).items()}
        self._globals = frame.f_globals
        self.describe(frame.f_code, node, given)

    def _variable_was(self, node: ast.Name, line: int) -> Any:
        now = self.value(node)
        return now if is_scalar(now) and self.is_still(node.id, line) else super()._variable_was(node, line)


def running_call(frame: FrameType, above: FrameType | None, line: int) -> Scope:
    """A call that still runs as it was at a line, with what the user's frame above it gave; the frame alone without source."""
    node = definition_of(frame.f_code)
    return RunningCall(frame, node, arguments_of(frame, above), line) if node is not None else Scope(frame)


class EnclosingCall(PastCall):
    """A call that has made the function that a frame runs, and is over: its variables but those that the function uses.

    Args:
        frame: of the inner function.
        node: definition of the outer one.
    """

    def __init__(self, frame: FrameType, node: Function) -> None:
        stored = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        free = {name: value for name, value in locals_of(frame).items() if name in frame.f_code.co_freevars}
        hidden = {*stored, *(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))}
        self._locals, self._globals = dict.fromkeys(hidden, UNKNOWN) | free, frame.f_globals
        self.describe(frame.f_code, node, None)
        self.name = node.name


def enclosing_call(frame: FrameType, line: int) -> Scope:
    """The call of the function around a line of the file of a frame; the frame alone where there is none."""
    node = definition_around(frame.f_code.co_filename, line)
    return EnclosingCall(frame, node) if isinstance(node, Function) else Scope(frame)


def arguments_of(frame: FrameType, above: FrameType | None) -> dict[str, Argument] | None:
    """What the user's frame above wrote for the parameters of a call; None if it called something else."""
    raw = site_of(above) if above is not None else None
    node, site = parsed_expression(call_text(raw), line_of(raw) if raw is not None else 1), to_site(raw)
    if above is None or not isinstance(node, ast.Call) or site is None:
        return None
    scope = Scope(above)
    function, owner = callee(node.func, scope)
    stars = any(isinstance(arg, ast.Starred) for arg in node.args) or any(keyword.arg is None for keyword in node.keywords)
    if function is None or function.__code__ is not frame.f_code:
        return None
    return _given_with_stars(frame, site) if stars else given_by(node, function, owner, scope, site)


def _given_with_stars(frame: FrameType, site: Site) -> dict[str, Argument] | None:
    """What `model(**batch)` gave, which the frame in which torch calls the module still holds; None for other calls."""
    between = frame.f_back
    while between is not None and is_library(between.f_code.co_filename):
        if between.f_code is torch_internals.module_call:
            held = locals_of(between)
            names = held.get("kwargs") if not held.get("args") else None
            scope, table = Scope(between), ast.Name("kwargs", ast.Load())
            keys = [name for name, _ in items_of(names) or () if type(name) is str] if type(names) is dict else None
            return (
                None
                if keys is None
                else {key: Argument(ast.Subscript(table, ast.Constant(key), ast.Load()), scope, site) for key in keys}
            )
        between = between.f_back
    return None
