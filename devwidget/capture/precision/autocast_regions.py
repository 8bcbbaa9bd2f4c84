"""Find the autocast region behind a dtype, from the source around the lines of living frames and of a tensor's creation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType

import torch

from devwidget.capture.object_fields import is_a
from devwidget.capture.source_code.expressions import Scope, argument_named
from devwidget.capture.source_code.source_files import read_file
from devwidget.capture.source_code.statements import site_at
from devwidget.capture.tensors import DEVICE
from devwidget.records.device import KINDS
from devwidget.records.fault_details import AutocastRegion
from devwidget.records.site import Site
from devwidget.records.syntax import Function

_Region = tuple[ast.With | ast.AsyncWith | Function, ast.expr]
"""A block or a function that runs in autocast, and the expression that says so."""
_KIND = re.compile(rf"\b(?:cpu|{'|'.join(KINDS)})\b")


def region_around(frames: Iterable[FrameType], site: Site | None = None) -> AutocastRegion | None:
    """Return the innermost region that living frames are in; of a line of one of their files, if a `site` is given.

    The function of that line may have returned.
    """
    for frame in frames:
        line = frame.f_lineno
        if site is not None:
            line = site.line
            if site.file != frame.f_code.co_filename:
                continue
        around = [region for region in _regions(frame) if region[0].body[0].lineno <= line <= (region[0].end_lineno or 0)]
        if around:
            return _describe(frame, around[-1])
    return None


def region_before(frames: Sequence[FrameType]) -> AutocastRegion | None:
    """Return the region that a step has left: the last one above a living frame's line, else the only one of the files."""
    found = dict[ast.AST, AutocastRegion]()
    for frame in frames:
        functions = read_file(frame.f_code.co_filename).functions_around(frame.f_lineno)
        first = functions[0].lineno if functions else 0
        regions = list(_regions(frame))
        above = [region for region in regions if first <= region[0].lineno < frame.f_lineno]
        if above:
            return _describe(frame, above[-1])
        found |= {region[0]: _describe(frame, region) for region in regions}
    if len(found) == 1:
        return found.popitem()[1]
    return None


def _regions(frame: FrameType) -> Iterator[_Region]:
    scope = Scope(frame)
    for node in read_file(frame.f_code.co_filename).statements:
        expressions: list[ast.expr] = []
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                expressions = node.decorator_list
            case ast.With() | ast.AsyncWith():
                expressions = [item.context_expr for item in node.items]
            case _:
                continue
        for expression in expressions:
            if _is_autocast(expression, scope):
                yield node, expression


def _is_autocast(node: ast.expr, scope: Scope) -> bool:
    enabled = argument_named(node, "enabled")
    if enabled is not None and scope.value(enabled) is False:
        return False
    called = node.func if isinstance(node, ast.Call) else node
    return "autocast" in ast.unparse(called) or is_a(scope.value(node), torch.autocast)


def _describe(frame: FrameType, region: _Region) -> AutocastRegion:
    node, expression = region
    return AutocastRegion(
        site_at(frame.f_code.co_filename, node.lineno, frame.f_code.co_name), _device_type(expression, Scope(frame))
    )


def _device_type(node: ast.expr, scope: Scope) -> str:
    """Return the device type of `torch.autocast("cuda")` or `torch.cuda.amp.autocast()`; "" if it is not written there."""
    if isinstance(node, ast.Call):
        first = argument_named(node, "device_type") or next(iter(node.args), node.func)
        value = scope.value(first)
        if type(value) is DEVICE:
            return str(value.type)
        found = _KIND.search(value if type(value) is str else ast.unparse(node.func))
        return found[0] if found is not None else ""
    value = scope.value(node)
    return str(value.device) if is_a(value, torch.autocast) else ""
