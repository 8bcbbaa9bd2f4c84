"""Factories: the functions of torch that decide themselves where their result is, and calls of them in an expression."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.devices import default_device
from devwidget.capture.source_code.expressions import Scope, is_of_torch
from devwidget.records.device import HOST_CONSTRUCTORS
from devwidget.records.syntax import name_of_called

_ARRIVALS = frozenset({"from_numpy", "frombuffer", "from_dlpack", "load"}) | HOST_CONSTRUCTORS
"""Those whose result is on the CPU, whatever the default device is."""


@dataclass(frozen=True, slots=True)
class FactoryCall:
    """One call of a factory.

    Attributes:
        text: its source.
        name: of the function.
        device: where its result is.
    """

    text: str
    name: str
    device: torch.device


@functools.cache
def names_of_factories() -> frozenset[str]:
    """Names of all of them."""
    return frozenset(function.__name__ for function in torch_internals.device_constructors()) | _ARRIVALS


def factory_of(node: ast.expr, scope: Scope) -> FactoryCall | None:
    """The one factory whose result decides where an expression is; None where something else may decide that, too."""
    calls = [each for each in scope.deciders(node) if isinstance(each, ast.Call)]
    factories = [each for call in calls if (each := _read_call(call, scope)) is not None]
    if len(factories) == 1:
        return factories[0]
    return None


def _read_call(node: ast.Call, scope: Scope) -> FactoryCall | None:
    name = name_of_called(node)
    if name not in names_of_factories() or _is_number(node, name) or not is_of_torch(scope.value(node.func), name):
        return None
    asked = next((keyword.value for keyword in node.keywords if keyword.arg == "device"), None)
    device = _find_device(name, scope.value(asked) if asked is not None else None)
    if device is not None:
        return FactoryCall(ast.unparse(node), name, device)
    return None


def _find_device(name: str, asked: Any) -> torch.device | None:
    """Where the result is; None if that cannot be told."""
    if name in _ARRIVALS:
        return torch.device("cpu")
    if asked is None:
        return default_device()
    if isinstance(asked, torch.device):
        return asked
    try:
        if type(asked) is str:
            return torch.device(asked)
        return None
    except RuntimeError:  # no such device
        return None


def _is_number(node: ast.Call, name: str) -> bool:
    """`torch.tensor(2.0)`, which may stay on the host."""
    first = node.args[0] if node.args else None
    number = first.operand if isinstance(first, ast.UnaryOp) else first
    return name == "tensor" and isinstance(number, ast.Constant)
