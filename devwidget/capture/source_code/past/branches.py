"""Branches: whether a statement of a function can have run, from what its arguments and its object were."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from devwidget.capture.object_fields import is_scalar
from devwidget.capture.source_code.expressions import UNKNOWN
from devwidget.records.syntax import blocks

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
        yield from ((child, ()) for child in blocks(node))


def exclude(one: tuple[Branch, ...], other: tuple[Branch, ...]) -> bool:
    """Whether two statements stand in the two branches of one `if`."""
    return any(node is also and side != there for node, side in one for also, there in other)


def may_have_run(around: tuple[Branch, ...], value: Value) -> bool:
    """False for a statement in a branch that was not taken."""
    return all(decided(node.test, node.lineno, value) in (None, side) for node, side in around)


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
    found = value(test, line)
    return bool(found) if found is not UNKNOWN and is_scalar(found) else None
