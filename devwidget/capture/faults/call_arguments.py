"""The tensors that a torch call was given: the operator's own names for them, and what the failing line writes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from types import BuiltinFunctionType
from typing import Any

import torch
from torch.overrides import get_testing_overrides

from devwidget.capture.object_fields import format_value, is_exactly
from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.source_code.expressions import operands_of
from devwidget.capture.tensors import is_tensor, tensors_in
from devwidget.records.syntax import arguments_in, names_in, parsed_operation

_CASTS = {"half": torch.float16, "float": torch.float32, "double": torch.float64, "bfloat16": torch.bfloat16}


def arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Tensors of a call with the operator's own names for them."""
    names = _signature(func)
    found: list[tuple[str, torch.Tensor]] = []
    for index, (name, value) in enumerate([*enumerate(args), *kwargs.items()]):
        label = names[index] if type(name) is int and index < len(names) else format_value(name)
        parts = list(tensors_in(value))
        many = not is_tensor(value)
        found += [(f"{label}[{place}]" if many else label, part) for place, part in enumerate(parts)]
    return found


_INDEXED = {"__getitem__": ("input", "index"), "__setitem__": ("input", "index", "value")}
"""Python's names for what stands in brackets, which torch's table calls `k` and `v`."""


def _signature(func: Any) -> tuple[str, ...]:
    """Argument names as torch's own override table writes them, else as the operator of that name does; () if there is none."""
    original = _original(func)
    if getattr(original, "__name__", "") in _INDEXED:
        return _INDEXED[original.__name__]
    listed = _signatures().get(id(original))
    names = _of_operator(original.__name__) if listed is None and type(original) is BuiltinFunctionType else listed or ()
    return tuple("input" if name == "self" else name for name in names)  # as the documentation of torch calls it


@functools.cache
def _of_operator(name: str) -> tuple[str, ...]:
    """Argument names of the first overload of an operator."""
    packet = getattr(torch.ops.aten, name, None)
    first = getattr(packet, packet.overloads()[0]) if packet is not None else None
    return tuple(each.name for each in first._schema.arguments) if first is not None else ()


def _original(func: Any) -> Any:
    """torch's own function, whoever has patched it now."""
    return func.__wrapped__ if type(func) is PatchedFunction else func


@functools.cache
def _signatures() -> dict[int, tuple[str, ...]]:
    """Argument names by the identity of torch's functions, which live as long as torch: nobody else's is ever held."""
    codes = {id(_original(func)): stand_in.__code__ for func, stand_in in get_testing_overrides().items()}
    names = {key: tuple(code.co_varnames[: code.co_argcount]) for key, code in codes.items()}
    return names | {id(torch.embedding): ("weight", "indices")}  # the table has them the wrong way round (torch 2.13)


def written_names(text: str, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, *, direct: bool) -> dict[int, str]:
    """Ids of the tensors among the arguments, and what the call's own source writes for each: `batch.mask[..., None]`.

    A function of torch.nn.functional passes its arguments on to one of nearly the same name.
    """
    node = parsed_operation(text)
    if not direct:
        called = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if not called or not name.startswith(called):
            return {}
    parts = _parts(node, len(args) if direct else len(node.args)) if isinstance(node, ast.Call) else (
        _parts(node, len(args)) if node is not None else [])  # fmt: skip
    pairs = list(zip(parts, args, strict=False)) if len(parts) == len(args) or not direct else []
    if isinstance(node, ast.Call):
        pairs += [(keyword.value, kwargs[keyword.arg]) for keyword in node.keywords if keyword.arg in kwargs]
    elif isinstance(node, ast.Subscript) and name in _INDEXED:  # what is written there stands behind it, on the same line
        pairs = list(zip(parts, args, strict=False))
    for part, arg in list(pairs):
        if isinstance(part, ast.List | ast.Tuple) and is_exactly(arg, (list, tuple)) and len(part.elts) == len(arg):
            pairs += zip(part.elts, arg, strict=True)
    return {id(arg): ast.unparse(part) for part, arg in pairs if is_tensor(arg)}


def computed(text: str) -> str:
    """The one argument of a call of a module, or of a library, that is computed on the line, so that it has no name."""
    node = parsed_operation(text)
    given = arguments_in(node) if isinstance(node, ast.Call) else []
    found = [ast.unparse(part) for part in given if _is_computed(part)]
    return found[0] if len(found) == 1 else ""


def cast_by(text: str) -> torch.dtype | None:
    """`torch.float32` for `out.float()`: what the result of a cast is, which a library may have made something else of."""
    node = parsed_operation(text)
    method = node.func if isinstance(node, ast.Call) else None
    return _CASTS.get(method.attr) if isinstance(method, ast.Attribute) else None


def _is_computed(part: ast.expr) -> bool:
    return bool(names_in(part)) and isinstance(part, ast.Call | ast.BinOp | ast.UnaryOp | ast.Subscript)


def _parts(node: ast.AST, count: int) -> list[ast.expr]:
    if not isinstance(node, ast.Call):
        return operands_of(node)
    is_method = isinstance(node.func, ast.Attribute) and len(node.args) == count - 1
    return [node.func.value, *node.args] if is_method and isinstance(node.func, ast.Attribute) else node.args


def is_a_place(text: str) -> bool:
    """True for what can be written once more without computing anything: names, attributes and items."""
    part = parsed_operation(text)
    return isinstance(part, ast.Attribute | ast.Subscript) and not any(
        isinstance(inner, ast.Call | ast.BinOp) for inner in ast.walk(part)
    )
