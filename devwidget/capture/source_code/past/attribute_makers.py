"""Attributes: what the methods of a class put into one of them, and the torch calls that made it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType

import torch

from devwidget.capture.source_code.classes import functions_of, set_by_name
from devwidget.capture.source_code.definitions import statements_of
from devwidget.capture.source_code.past.decisions import Maker
from devwidget.capture.source_code.past.makers import makers
from devwidget.capture.source_code.past.past_calls import PastCall, entered
from devwidget.capture.source_code.value_paths import Keys, path_of
from devwidget.records.site import Site
from devwidget.records.syntax import is_self_attribute, targets_of

_FILLING = frozenset({"append", "add", "insert", "appendleft"})


def attribute_makers(owner: object, name: str, device: torch.device) -> list[Maker]:
    """The calls that made what an object keeps as `cache['a']`, as far as the source of its class tells them."""
    attribute, keys = path_of(name)
    found = [
        made
        for value, past, site, rest in _stored(owner, attribute, keys)
        for made in makers(value, past, site, rest)
        if isinstance(made, Maker) and made.makes_on(device)
    ]
    return list(dict.fromkeys(found))


def _stored(owner: object, attribute: str, keys: Keys) -> Iterator[tuple[ast.expr, PastCall, Site, Keys]]:
    """The values that methods give to an attribute, `__init__` first, or put into it."""
    for function in _methods(type(owner)):
        past = entered(function, owner, None)
        for each in statements_of(past.node) if past is not None else ():
            for value, rest in _puts(each, attribute, keys):
                if past is not None:
                    yield value, past, past.site(each), rest


def _methods(kind: type) -> list[FunctionType]:
    return sorted(functions_of(kind), key=lambda function: function.__name__ != "__init__")


def _puts(statement: ast.stmt, attribute: str, keys: Keys) -> Iterator[tuple[ast.expr, Keys]]:
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Assign | ast.AnnAssign) and value is not None:
        for target in targets_of(statement):
            if is_self_attribute(target, attribute):
                yield value, keys
            elif isinstance(target, ast.Subscript) and is_self_attribute(target.value, attribute):
                yield value, keys[1:]
    elif isinstance(statement, ast.Expr) and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        fills = value.func.attr in _FILLING and is_self_attribute(value.func.value, attribute)
        yield from ((added, keys[1:]) for added in value.args[-1:] if fills)
    given = set_by_name(statement, attribute)
    if given is not None:
        yield given, keys
