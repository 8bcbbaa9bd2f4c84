"""Hand-written gradients: what `forward` of an `autograd.Function` moved, and `backward` gets back."""

from __future__ import annotations

import ast
from types import CodeType
from typing import NamedTuple

import torch

from devwidget.capture.source_code.definitions import ClassName, classes, methods_of, statements_of
from devwidget.capture.source_code.statements import site_at
from devwidget.records.device import PLACING_METHODS
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression


class MoveInForward(NamedTuple):
    """A line of `forward` and the move on it: its source, and the method."""

    site: Site
    call: str
    method: str


def move_in_forward(backward: CodeType, device: torch.device) -> MoveInForward | None:
    """The one move to a device that the `forward` beside a `backward` makes; None if there are several, or none."""
    owner = backward.co_qualname.removesuffix(".backward").rpartition(".")[2]
    if not backward.co_qualname.endswith(".backward"):
        return None
    found = []
    for kind in classes(backward.co_filename, ClassName(owner, (backward.co_firstlineno,))):
        for statement in (each for method in methods_of(kind) if method.name == "forward" for each in statements_of(method)):
            found += [(statement, node) for node in ast.walk(statement) if isinstance(node, ast.Call) and _goes(node, device)]
    if len(found) != 1:
        return None
    ((statement, node),) = found
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    return MoveInForward(site_at(backward.co_filename, statement.lineno, "forward"), ast.unparse(node), method)


def is_from_context(value: str, backward: CodeType) -> bool:
    """Whether an expression reads what `forward` has left in the context: `ctx.saved_tensors`, `ctx.mask`."""
    node = parsed_expression(value)
    while isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.value, ast.Name):
        node = node.value
    named = node.value.id if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name) else ""
    return backward.co_name == "backward" and named != "" and backward.co_varnames[:1] == (named,)


def _goes(node: ast.Call, device: torch.device) -> bool:
    """`x.cpu()`, or `x.to('cpu')`, for the CPU."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in PLACING_METHODS:
        return False
    named = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return node.func.attr == device.type == "cpu" or str(device) in named
