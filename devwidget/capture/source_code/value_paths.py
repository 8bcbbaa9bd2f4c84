"""Paths into values: the items and attributes that `batch['ids'][0]` asks for, and what of an expression they select."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Any

from devwidget.capture.object_fields import dict_of, find_class_attribute, is_a, is_exactly
from devwidget.capture.tensors import is_tensor
from devwidget.records.site import Site
from devwidget.records.syntax import parsed_expression, parsed_statement

Keys = tuple[Any, ...]
"""Items and attributes, outermost first."""


def path_of(name: str) -> tuple[str, Keys]:
    """`batch` and `("ids", 0)` of `batch['ids'][0]`."""
    node, keys = parsed_expression(name) if name else None, []
    while isinstance(node, ast.Subscript | ast.Attribute):
        keys.append(getattr(node.slice, "value", None) if isinstance(node, ast.Subscript) else node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else ""), tuple(reversed(keys))


def keys_of(site: Site, name: str) -> Keys:
    """`(1,)` for `b` of the statement `a, b = f(x)`; () for what is assigned alone."""
    statement = parsed_statement(site.text)
    return place_of(statement, name) if statement is not None else ()


def place_of(statement: ast.stmt, name: str) -> Keys:
    """`keys_of`, of a parsed statement."""
    for target in getattr(statement, "targets", ()):
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        for index, part in enumerate(parts):
            if ast.unparse(part) == name:
                return (index,)
    return ()


def selected(value: Any, keys: Keys) -> Any:
    """The item or attribute of a value that is asked for, as far as it can be read."""
    for key in keys:
        if is_tensor(value):
            return value
        if is_exactly(value, (list, tuple)) and type(key) is int and -len(value) <= key < len(value):
            value = value[key]
        elif type(value) is dict and is_exactly(key, (str, int)):
            value = dict.get(value, key, None)
        elif type(value) is functools.partial and key in ("keywords", "args"):
            value = value.keywords if key == "keywords" else value.args
        elif is_a(value, tuple) and key in (names := fields_of_class(type(value))):
            value = tuple.__getitem__(value, names.index(key))
        else:
            fields = dict_of(value)
            value = fields.get(key) if type(key) is str and is_a(fields, dict) else None
    return value


def parts_of_value(node: ast.expr, keys: Keys) -> Iterator[tuple[ast.AST | None, Keys]]:
    """The parts of an expression that its value comes from, and what is asked of each."""
    if isinstance(node, ast.Tuple | ast.List):
        index = keys[0] if keys and type(keys[0]) is int else None
        known = index is not None and -len(node.elts) <= index < len(node.elts)
        parts = [node.elts[index]] if known and index is not None else node.elts
        yield from ((part, keys[1:] if known else keys) for part in parts)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if not keys or (isinstance(key, ast.Constant) and key.value == keys[0]):
                yield value, keys[1:]
    elif isinstance(node, ast.BinOp):
        yield from ((part, ()) for part in (node.left, node.right))
    elif isinstance(node, ast.Compare):
        yield from ((part, ()) for part in (node.left, *node.comparators))
    elif isinstance(node, ast.UnaryOp):
        yield node.operand, ()
    elif isinstance(node, ast.IfExp):
        yield from ((part, keys) for part in (node.body, node.orelse))
    elif isinstance(node, ast.Starred | ast.NamedExpr):
        yield node.value, keys


def fields_of_class(kind: type) -> tuple[str, ...]:
    """The fields of a data class or a named tuple, in order."""
    fields = find_class_attribute(kind, "__dataclass_fields__") or ()
    named = find_class_attribute(kind, "_fields") or ()
    return tuple(fields) or (named if type(named) is tuple else ())
