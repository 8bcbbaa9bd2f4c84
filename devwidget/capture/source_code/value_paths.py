"""Paths into values: the items and attributes that `batch['ids'][0]` asks for, and the parts of one that they select."""

from __future__ import annotations

import ast
from typing import Any

from devwidget.capture.object_fields import find_class_attribute
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
    for target in getattr(parsed_statement(site.text), "targets", ()):
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        for index, part in enumerate(parts):
            if ast.unparse(part) == name:
                return (index,)
    return ()


def fields_of_class(kind: type) -> tuple[str, ...]:
    """The fields of a data class or a named tuple, in order."""
    fields = find_class_attribute(kind, "__dataclass_fields__") or ()
    named = find_class_attribute(kind, "_fields") or ()
    return tuple(fields) or (named if type(named) is tuple else ())
