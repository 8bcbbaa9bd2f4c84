"""Branches: whether a statement of a function can have run, from what its arguments and its object were."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from devwidget.capture.object_fields import is_scalar
from devwidget.capture.source_code.expressions import UNKNOWN
from devwidget.records.syntax import inner_statements

Branch = tuple[ast.If, bool]
Value = Callable[[ast.expr, int], Any]
"""What an expression was when the test at a line asked for it; UNKNOWN if that cannot be told."""


def branches(function: ast.stmt) -> dict[ast.stmt, tuple[Branch, ...]]:
    """The statements of a function, each with the `if`s around it and whether it stands in their body."""
    found: dict[ast.stmt, tuple[Branch, ...]] = {}
    waiting: list[tuple[ast.stmt, tuple[Branch, ...]]] = [(function, ())]
    while waiting:
        node, around = waiting.pop()
        found[node] = around
        waiting += [(child, around + side) for child, side in _children(node)]
    return found


def _children(node: ast.stmt) -> Iterator[tuple[ast.stmt, tuple[Branch, ...]]]:
    if isinstance(node, ast.If):
        yield from ((child, ((node, True),)) for child in node.body)
        yield from ((child, ((node, False),)) for child in node.orelse)
    else:
        yield from ((child, ()) for child in inner_statements(node))


def exclude(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> bool:
    """Whether two statements stand in the two branches of one `if`."""
    return any(node is also and side != there for node, side in one for also, there in other)


def may_have_run(around: tuple[Branch, ...], value: Value) -> bool:
    """False for a statement in a branch that was not taken."""
    return all(decided(node.test, node.lineno, value) in (None, side) for node, side in around)


_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Sub: operator.sub}


def _compared(test: ast.Compare, line: int, value: Value) -> bool | None:
    """`step == steps - 1` of whole numbers, and texts that are the same or not."""
    left, right = (_plain(each, line, value) for each in (test.left, test.comparators[0]))
    alike = type(left) is type(right) and type(left) in (int, bool, str)
    return _COMPARED[type(test.ops[0])](left, right) if alike else None


def _plain(node: ast.expr, line: int, value: Value) -> Any:
    """What an expression of whole numbers was, and of a name or a constant."""
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        left, right = _plain(node.left, line, value), _plain(node.right, line, value)
        return _COMPUTED[type(node.op)](left, right) if type(left) is type(right) is int else UNKNOWN
    return value(node, line)


def decided(test: ast.expr, line: int, value: Value) -> bool | None:
    """What a test gave; None if that cannot be told."""
    if isinstance(test, ast.BoolOp):
        parts, stops = [decided(part, line, value) for part in test.values], isinstance(test.op, ast.Or)
        return stops if stops in parts else None if None in parts else not stops
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand, line, value)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot):
        left, right = value(test.left, line), value(test.comparators[0], line)
        known = left is not UNKNOWN and right is None
        return (left is None) == isinstance(test.ops[0], ast.Is) if known else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _COMPARED:
        return _compared(test, line, value)
    found = value(test, line)
    return bool(found) if found is not UNKNOWN and is_scalar(found) else None
