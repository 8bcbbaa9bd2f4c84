"""Expressions that only make, move and wrap tensors and modules, and so may be run again."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from devwidget.records.device import PLACING_METHODS

_BUILTINS = {"bool", "dict", "enumerate", "float", "int", "len", "list", "range", "sorted", "tuple", "zip", "min", "max"}
_METHODS = {
    "register_buffer",
    "register_parameter",
    "items",
    "keys",
    "values",
    *PLACING_METHODS,
    "float",
    "half",
    "double",
} | {*("bool", "int", "long", "clone", "detach", "contiguous", "eval", "train", "type", "bfloat16")}
"""Of a module, a container or a tensor that was there before."""
_REACHES_OUT = {"save", "load", "hub", "distributed", "multiprocessing", "compile", "jit", "serialization", "utils", "ops"}
_OPAQUE = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)


def is_harmless(node: ast.AST, known: Mapping[str, Any], given: Collection[str]) -> bool:
    """Whether running some syntax does nothing but make a value.

    Args:
        node: a statement or an expression.
        known: global names.
        given: further names that have a value, such as `self`.
    """
    bound = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - bound - {*given}
    if any(isinstance(each, _OPAQUE) for each in ast.walk(node)) or not all(n in known or hasattr(builtins, n) for n in names):
        return False
    return all(_is_harmless_call(each, known, bound | {*given}) for each in ast.walk(node) if isinstance(each, ast.Call))


def _is_harmless_call(call: ast.Call, known: Mapping[str, Any], values: Collection[str]) -> bool:
    """A function or class of torch, a method of what it has made or of a value, or one of a few builtins."""
    root, *names = _name_parts(call.func)
    if not isinstance(root, ast.Name):
        return bool(names) and isinstance(root, ast.Call | ast.Constant | ast.BinOp | ast.UnaryOp)
    if root.id in values:
        return len(names) == 1 and names[0] in _METHODS
    if root.id not in known:
        return not names and root.id in _BUILTINS
    value: Any = known[root.id]
    for name in names:
        if not isinstance(value, types.ModuleType):
            break
        value = getattr(value, name, None)
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return len(names) == 1 and names[0] in _METHODS
    return _is_of_torch(value) and not _REACHES_OUT & {root.id, *names}


def _name_parts(node: ast.expr) -> Iterator[Any]:
    """`torch`, `nn`, `Linear` of `torch.nn.Linear`."""
    if isinstance(node, ast.Attribute):
        yield from _name_parts(node.value)
        yield node.attr
    else:
        yield node


def _is_of_torch(value: Any) -> bool:
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return (isinstance(module, str) and module.partition(".")[0] == "torch") or isinstance(value, types.BuiltinFunctionType)
