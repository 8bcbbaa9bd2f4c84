"""Running calls: a frame as it was at a line above the one where it stands, a file or the cells of a notebook among them."""

from __future__ import annotations

import ast
import linecache
from types import FrameType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import is_a, is_scalar, items_of
from devwidget.capture.source_code.call_sites import CLICK, call_text, is_library, line_of, locals_of, site_of, to_site
from devwidget.capture.source_code.definitions import definition_around, statements_of
from devwidget.capture.source_code.expressions import UNKNOWN, Scope
from devwidget.capture.source_code.past.past_calls import Argument, Function, PastCall, callee, definition_of, given_by
from devwidget.capture.source_code.statements import site_at
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import parsed, parsed_expression, targets_of


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


_LINES = 1_000_000
"""Lines that are set aside for each cell, so that those of all cells can be told apart."""


class TopLevel(PastCall):
    """The variables of a notebook or a file, without those that hold what it has made.

    Args:
        frame: of the cell that runs, or of the file.
        files: names of the cells, in the order in which they ran, the running one last; or of the file.
    """

    def __init__(self, frame: FrameType, files: list[str]) -> None:
        self._files = files
        body: list[ast.stmt] = []
        for number, file in enumerate(files):
            tree = parsed("".join(linecache.getlines(file)), deep=True)
            for node in tree.body if tree is not None else ():
                body.append(ast.increment_lineno(node, number * _LINES))
        empty = ast.arguments([], [], None, [], [], None, [])
        function = ast.FunctionDef("<module>", empty, body, [])
        function.lineno, function.end_lineno = 0, len(files) * _LINES
        self.describe(frame.f_code, function, None)
        made = {part.id for each in statements_of(function) for part in targets_of(each) if isinstance(part, ast.Name)}
        self._locals: dict[str, Any] = {}
        self._globals = {
            name: UNKNOWN if name in made and not _is_plain(value) else value for name, value in frame.f_globals.items()
        }

    def _variable_was(self, node: ast.Name, line: int) -> Any:
        now = self.value(node)
        return now if is_scalar(now) and self.is_still(node.id, line) else super()._variable_was(node, line)

    def site(self, node: ast.stmt) -> Site:
        """Where one of its statements is, for the search: lines of earlier cells are counted."""
        return Site(self._files[node.lineno // _LINES], node.lineno, "", "<module>")

    def site_of_line(self, file: str, line: int) -> Site:
        """Where a line of a file is, for the search."""
        return Site(file, self._files.index(file) * _LINES + line, "", "<module>")

    def shown(self, site: Site) -> Site:
        """The place as the user knows it."""
        return site_at(site.file, site.line % _LINES, "<module>")


def top_level(frame: FrameType) -> TopLevel | None:
    """What has run at the top level when a frame of it runs."""
    file = frame.f_code.co_filename
    others = [each for each in cells() if each != file] if cell_label(file) or file == CLICK else []
    return TopLevel(frame, [*others, file])


def _is_plain(value: object) -> bool:
    """Numbers, texts, devices and classes: what is what the cell says whenever it is read."""
    return is_scalar(value) or is_a(value, (torch.device, torch.dtype, type))
