"""Find the autocast region behind a dtype, from the source around the lines of living frames and of a tensor's creation."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

import torch

from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.expressions import Scope, argument_named
from devwidget.capture.source_code.source_files import Function, read_file
from devwidget.capture.tensors import DEVICE
from devwidget.records.fault_details import AutocastRegion
from devwidget.records.site import Site

_Head = ast.With | ast.AsyncWith | Function


def region_around(frames: Iterable[FrameType]) -> AutocastRegion | None:
    """Return the innermost region that living frames are in."""
    for frame in frames:
        regions = [each for each in _regions(frame) if _is_inside(each[0], frame.f_lineno)]
        if regions:
            return _describe(frame, *regions[-1])
    return None


def region_of_line(frames: Sequence[FrameType], site: Site | None) -> AutocastRegion | None:
    """Return the innermost region around a line that has run; its function may have returned."""
    if site is None:
        return None
    for frame in frames:
        if frame.f_code.co_filename == site.file:
            regions = [each for each in _regions(frame) if _is_inside(each[0], site.line)]
            return _describe(frame, *regions[-1]) if regions else None
    return None


def region_before(frames: Sequence[FrameType]) -> AutocastRegion | None:
    """Return the region that a step has left: the last one above a living frame's line, else the only one of the files."""
    for frame in frames:
        functions = read_file(frame.f_code.co_filename).functions_around(frame.f_lineno)
        first = functions[0].lineno if functions else 0
        over = [each for each in _regions(frame) if first <= each[0].lineno < frame.f_lineno]
        if over:
            return _describe(frame, *over[-1])
    found = {}
    for frame in frames:
        found.update({node: (frame, node, expression) for node, expression in _regions(frame)})
    if len(found) == 1:
        return _describe(*next(iter(found.values())))
    return None


def _regions(frame: FrameType) -> Iterator[tuple[_Head, ast.expr]]:
    """Yield the blocks and functions of a frame's file that run in autocast, each with the expression that says so."""
    scope = Scope(frame)
    for node in read_file(frame.f_code.co_filename).statements:
        match node:
            case ast.FunctionDef(decorator_list=expressions) | ast.AsyncFunctionDef(decorator_list=expressions):
                yield from ((node, each) for each in expressions if _is_autocast(each, scope))
            case ast.With(items=items) | ast.AsyncWith(items=items):
                yield from ((node, item.context_expr) for item in items if _is_autocast(item.context_expr, scope))


def _is_autocast(node: ast.expr, scope: Scope) -> bool:
    enabled = argument_named(node, "enabled")
    if enabled is not None and scope.value(enabled) is False:
        return False
    called = node.func if isinstance(node, ast.Call) else node
    return "autocast" in ast.unparse(called) or is_a(scope.value(node), torch.autocast)


def _is_inside(node: _Head, line: int) -> bool:
    return node.body[0].lineno <= line <= (node.end_lineno or node.lineno)


def _describe(frame: FrameType, node: _Head, expression: ast.expr) -> AutocastRegion:
    site = statements.site_at(frame.f_code.co_filename, node.lineno, frame.f_code.co_name)
    return AutocastRegion(site, _device_type(expression, Scope(frame)))


def _device_type(node: ast.expr, scope: Scope) -> str:
    """Return the device type of `torch.autocast("cuda")`; "" if it is not written there."""
    given = scope.value(node)
    if is_a(given, torch.autocast):
        return str(given.device)
    if not isinstance(node, ast.Call):
        return ""
    for kind in ("cuda", "cpu"):
        if f"{kind}.amp." in ast.unparse(node.func):
            return kind
    first = argument_named(node, "device_type") or next(iter(node.args), None)
    value = scope.value(first) if first is not None else None
    if type(value) is DEVICE:
        return str(value.type)
    return value if type(value) is str and value.isalpha() else ""
