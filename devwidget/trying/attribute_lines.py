"""Attribute lines: what a statement of a constructor assigns to attributes, and whether anything else there depends on that."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from devwidget.records.syntax import is_self_attribute
from devwidget.trying.edited_file import Function, NotTried, Place

_GROWS = {"append", "extend", "insert", "update"}


def self_name_of(function: Function) -> str:
    """How a method calls its object."""
    return function.args.args[0].arg if function.args.args else ""


def assigned(statement: ast.stmt, self_name: str) -> dict[str, ast.expr]:
    """The attributes that a statement assigns, and what it gives them: of `self.a, self.b = table()` the names `a` and `b`."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or value is None or len(getattr(statement, "targets", [0])) > 1:
        raise NotTried("no assignment to an attribute")
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [part.attr for part in parts if isinstance(part, ast.Attribute) and is_self_attribute(part, self_name=self_name)]
    if len(set(names)) < len(parts):
        raise NotTried("no assignment to an attribute")
    if parts == [target]:
        return {names[0]: value}
    given = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    return dict(zip(names, given if len(given) == len(names) else [ast.Name(name, ast.Load()) for name in names], strict=True))


def without_unpacking(old: ast.stmt, statements: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """The new statements without the first, if that only gives names to what the old one has unpacked."""
    first, value = statements[0] if statements else None, getattr(old, "value", None)
    target = first.targets[0] if isinstance(first, ast.Assign) else None
    named = isinstance(target, ast.Tuple) and all(isinstance(part, ast.Name) for part in target.elts)
    same = isinstance(first, ast.Assign) and value is not None and ast.dump(first.value) == ast.dump(value)
    return statements[1:] if named and same else statements


def is_own(node: ast.AST | None, self_name: str, attribute: str = "") -> bool:
    """Whether a node is `self.attribute`, of any attribute if none is named."""
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self_name
    return named and attribute in ("", getattr(node, "attr", ""))


def is_alone(
    place: Place, old: ast.stmt | None, after: Sequence[ast.stmt], self_name: str, attribute: str, new: Sequence[ast.stmt]
) -> bool:
    """The attribute is set once, after the constructor of the base, and then only filled or read while the module is built."""
    body: list[ast.stmt] = getattr(place.function, "body", [])
    before, in_constructor = body[: len(body) - len(after)], getattr(place.function, "name", "") == "__init__"
    is_begun = not in_constructor or any("__init__" in ast.unparse(each) for each in before)
    sets = [n for n in ast.walk(place.owner or ast.Pass()) if is_self_attribute(n, attribute, self_name) and _is_set(n)]
    if not in_constructor and len(sets) != 1:
        return False
    uses = [n for each in after for n in ast.walk(each) if is_self_attribute(n, attribute, self_name)]
    parents = {id(child): n for each in after for n in ast.walk(each) for child in ast.iter_child_nodes(n)}
    words = " ".join(map(ast.unparse, new))
    if "register_buffer" in words:
        return is_begun and not any(_is_set(use) for use in uses)
    return is_begun and all(getattr(parents.get(id(use)), "attr", "") in _GROWS for use in uses)


def _is_set(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)


def is_registration(statement: ast.stmt, self_name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a statement registers something, or assigns one of some attributes."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        func = statement.value.func
        return any(is_self_attribute(func, method, self_name) for method in ("register_buffer", "register_parameter"))
    try:
        return assigned(statement, self_name).keys() <= attributes.keys()
    except NotTried:
        return False
