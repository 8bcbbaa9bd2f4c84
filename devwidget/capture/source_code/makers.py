"""Makers: the torch calls that a value came from, followed through assignments and functions that have returned."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import defined, is_a
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, origin_of, stays
from devwidget.capture.source_code.past_calls import PastCall, entered, given_by, past_call
from devwidget.capture.source_code.value_paths import Keys, fields_of_class, parts_of_value, place_of, selected
from devwidget.capture.tensors import is_tensor, tensors_in
from devwidget.records.site import Site

MOST_NODES = 400
"""Expressions that are looked at for one value."""
_ARRIVALS = frozenset({"from_numpy", "frombuffer", "from_dlpack", "load"})


@dataclass(frozen=True, slots=True)
class Maker:
    """A call that decided a device.

    Attributes:
        site: its statement.
        call: its source.
        op: the torch function.
        device: that it was told; None where it was told none.
        scope: what has a value there.
    """

    site: Site
    call: str
    op: str
    device: torch.device | None
    scope: Scope

    def makes_on(self, device: torch.device) -> bool:
        """Whether the result of the call was there."""
        told = self.device or (torch.device("cpu") if self.op in _ARRIVALS else torch.get_default_device())
        return told == device

    def partners(self, target: torch.device) -> tuple[str, ...]:
        """Arguments of a function that has returned which were tensors on a device."""
        given = self.scope.arguments if isinstance(self.scope, PastCall) else {}
        values = ((name, self.scope.value(ast.Name(name))) for name in given)
        return tuple(name for name, value in values if is_tensor(value) and value.device == target)


def makers(node: ast.expr, scope: Scope, site: Site, keys: Keys = ()) -> list[Maker | torch.Tensor]:
    """Where the value of an expression may come from: calls that made it, and tensors that still exist.

    Args:
        node: the expression.
        scope: its variables.
        site: the statement that it stands in.
        keys: items and attributes of the value that are asked for, outermost first.
    """
    return list(_Search().follow(node, scope, site, keys))


class _Search:
    def __init__(self) -> None:
        self._left = MOST_NODES

    def follow(self, node: ast.AST | None, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        self._left -= 1
        if self._left < 0 or not isinstance(node, ast.expr):
            return
        value = scope.value(node)
        if value is not UNKNOWN and not isinstance(node, ast.Tuple | ast.List):
            yield from tensors_in(selected(value, keys), depth=2)
        elif isinstance(node, ast.Call):
            yield from self._call(node, scope, site, keys)
        elif isinstance(node, ast.Name):
            yield from self._variable(node.id, scope, site, keys)
        elif isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            yield from self.follow(node.value, scope, site, keys if key is None else (key, *keys))
        elif isinstance(node, ast.Attribute):
            yield from self.follow(node.value, scope, site, (node.attr, *keys))
        else:
            for part, rest in parts_of_value(node, keys):
                yield from self.follow(part, scope, site, rest)

    def _variable(self, name: str, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """A variable of a function that has returned: its last assignment above, else what the caller gave."""
        if not isinstance(scope, PastCall):
            return
        statement = scope.assigned(name, site.line)
        if statement is not None:
            value = getattr(statement, "value", None)
            yield from self.follow(value, scope, scope.site(statement), (*place_of(statement, name), *keys))
        elif name in scope.arguments:
            given = scope.arguments[name]
            yield from self.follow(given.node, given.scope, given.site, keys)

    def _call(self, node: ast.Call, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        func = scope.value(node.func)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if origin_of(func).startswith("torch") or func is getattr(torch, name, node):
            yield from self._of_torch(node, name, scope, site)
        elif is_a(func, type):
            yield from self._object(node, func, scope, site, keys)
        elif (past := past_call(node, scope, site)) is not None:
            for returned, where in past.returns():
                yield from self.follow(returned, past, where, keys)
        elif name == "get" and isinstance(node.func, ast.Attribute) and node.args and isinstance(node.args[0], ast.Constant):
            yield from self.follow(node.func.value, scope, site, (node.args[0].value, *keys))
        elif isinstance(node.func, ast.Attribute) and stays(node, scope):
            yield from self.follow(node.func.value, scope, site, ())

    def _of_torch(self, node: ast.Call, name: str, scope: Scope, site: Site) -> Iterator[Maker | torch.Tensor]:
        """A factory, or an operation: its result is where its arguments are."""
        told = next((k.value for k in node.keywords if k.arg == "device"), None)
        if name in _factories():
            device = _device(scope.value(told)) if told is not None else None
            if (told is None and not _is_scalar(node)) or device is not None:
                yield Maker(site, ast.unparse(node), name, device, scope)
        elif told is None:
            for argument in node.args:
                yield from self.follow(argument, scope, site, ())

    def _object(self, node: ast.Call, kind: type, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """A field of what a constructor gives: a keyword of `dict(...)` or a data class, or what `__init__` assigns to it."""
        wanted = [k.value for k in node.keywords if keys and k.arg == keys[0]]
        order = list(fields_of_class(kind))
        if not wanted and keys and keys[0] in order and order.index(keys[0]) < len(node.args):
            wanted = [node.args[order.index(keys[0])]]
        for part in wanted:
            yield from self.follow(part, scope, site, keys[1:])
        if not wanted and keys and type(keys[0]) is str:
            yield from self._field(node, kind, scope, site, keys)
        if not wanted and kind in (list, tuple) and node.args:
            yield from self.follow(node.args[0], scope, site, keys)

    def _field(self, node: ast.Call, kind: type, scope: Scope, site: Site, keys: Keys) -> Iterator[Maker | torch.Tensor]:
        """What `__init__` of a user's class assigns to `self.codes`."""
        init = defined(kind, "__init__")
        given = given_by(node, init, None, scope, site) if type(init) is FunctionType else {}
        past = entered(init, UNKNOWN, given) if type(init) is FunctionType else None
        statement = past.assigned(f"self.{keys[0]}", sys.maxsize) if past is not None else None
        if past is not None and statement is not None:
            yield from self.follow(getattr(statement, "value", None), past, past.site(statement), keys[1:])


def _is_scalar(node: ast.Call) -> bool:
    """`torch.tensor(2.0)`, which may stay on the host."""
    first = node.args[0] if node.args else None
    number = first.operand if isinstance(first, ast.UnaryOp) else first
    return isinstance(number, ast.Constant) and ast.unparse(node.func).endswith("tensor")


def _device(value: Any) -> torch.device | None:
    try:
        return torch.device(value) if type(value) is str else value if isinstance(value, torch.device) else None
    except RuntimeError:  # no such device
        return None


@functools.cache
def _factories() -> frozenset[str]:
    return frozenset(func.__name__ for func in torch_internals.device_constructors()) | _ARRIVALS
