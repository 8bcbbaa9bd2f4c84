"""Name the tensor arguments of a torch call: the operator's own names, and the expressions on the failing line."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FrameType
from typing import Any

import torch
from torch.overrides import get_testing_overrides

from devwidget.capture.modules import all_tensors, is_module
from devwidget.capture.object_fields import format_value, is_exactly
from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.source_code.arguments import arguments_of, has_stars
from devwidget.capture.source_code.expressions import Scope, operands_of
from devwidget.capture.source_code.frames import is_place
from devwidget.capture.source_code.stack import Owner, locals_of, stack
from devwidget.capture.tensors import is_tensor, tensors_in
from devwidget.records.syntax import arguments_in, names_in, parsed_operation


def arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of a call by the operator's own names."""
    names = _signature(func, args)
    labels = [*names[: len(args)], *map(str, range(len(names), len(args))), *map(format_value, kwargs)]
    found: list[tuple[str, torch.Tensor]] = []
    for label, value in zip(labels, (*args, *kwargs.values()), strict=True):
        if is_tensor(value):
            found.append((label, value))
        else:
            found += [(f"{label}[{place}]", part) for place, part in enumerate(tensors_in(value))]
    return found


_INDEXED = {"__getitem__": ("input", "index"), "__setitem__": ("input", "index", "value")}
"""Python's names for subscripts, which torch's table calls `k` and `v`."""


def _signature(func: Any, args: tuple[Any, ...]) -> tuple[str, ...]:
    """Return argument names of the operator that takes such arguments, else from torch's override table; () if unknown."""
    original = _original(func)
    name = getattr(original, "__name__", "")
    if name in _INDEXED:
        return _INDEXED[name]
    names: tuple[str, ...] = ()
    if type(original) is BuiltinFunctionType:
        names = _of_operator(name, tuple(map(_holds_tensors, args)))
    names = names or _signatures().get(id(original), ())
    return tuple("input" if each == "self" else each for each in names)  # as the documentation of torch calls it


@functools.cache
def _of_operator(name: str, holding: tuple[str, ...]) -> tuple[str, ...]:
    """Return the argument names of the first overload that takes tensors and lists of them where a call has them."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or not hasattr(packet, "overloads"):  # `__new__` is a method of the namespace, not an operator
        return ()
    for overload in packet.overloads():
        wanted = getattr(packet, overload)._schema.arguments
        if len(wanted) >= len(holding) and all(map(_takes, wanted, holding)):
            return tuple(each.name for each in wanted)
    return ()


def _holds_tensors(value: Any) -> str:
    """Return `tensor`, or `tensors` for a list of them; "" for any other argument."""
    if is_tensor(value):
        return "tensor"
    if is_exactly(value, (list, tuple)) and any(map(is_tensor, value)):
        return "tensors"
    return ""


def _takes(wanted: Any, holding: str) -> bool:
    """Return whether an argument of a schema takes what a call has there."""
    kind = str(wanted.type)
    match holding:
        case "tensor":
            return kind in ("Tensor", "Optional[Tensor]")
        case "tensors":
            return kind in ("List[Tensor]", "List[Optional[Tensor]]")
    return kind != "Tensor"


def _original(func: Any) -> Any:
    """Return torch's own function, even if it is patched."""
    if type(func) is PatchedFunction:
        return func.__wrapped__
    return func


@functools.cache
def _signatures() -> dict[int, tuple[str, ...]]:
    """Return argument names by the id of torch functions. Ids are stable because torch keeps these functions alive."""
    names = {}
    for func, stand_in in get_testing_overrides().items():
        code = stand_in.__code__
        names[id(_original(func))] = tuple(code.co_varnames[: code.co_argcount])
    return names


def written_names(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, str]:
    """Map the ids of the tensor arguments to their expressions in the call's source: `batch.mask[..., None]`."""
    node, keywords = parsed_operation(text), list[ast.keyword]()
    parts = operands_of(node)
    if isinstance(node, ast.Call):
        parts, keywords = node.args, node.keywords
        if isinstance(node.func, ast.Attribute) and len(parts) == len(args) - 1:
            parts = [node.func.value, *parts]  # torch gives a method its object
    pairs = [(keyword.value, kwargs[keyword.arg]) for keyword in keywords if keyword.arg in kwargs]
    # A value written to an item follows the item.
    if len(parts) == len(args) or isinstance(node, ast.Subscript):
        pairs += zip(parts, args, strict=False)
    for part, arg in list(pairs):
        if isinstance(part, ast.List | ast.Tuple) and is_exactly(arg, (list, tuple)) and len(part.elts) == len(arg):
            pairs += zip(part.elts, arg, strict=True)
    return {id(arg): ast.unparse(part) for part, arg in pairs if is_tensor(arg)}


def handed_on(frame: FrameType, text: str, given: Sequence[torch.Tensor]) -> dict[int, str]:
    """Map the ids of tensors of a failing call inside of a library to the arguments by which the user passed them.

    They are the values of the parameters of the function or module that the user called. The function may have given a
    parameter another value: `lengths, order = torch.sort(lengths)`.

    Args:
        frame: the innermost call of the library.
        text: source of the call by which the user entered the library.
        given: tensors of the failing call.
    """
    call, entered = parsed_operation(text), _entered(frame)
    user = entered[-1].f_back if entered else frame
    if not isinstance(call, ast.Call) or user is None:
        return {}
    scope, found = Scope(user), dict[int, str]()
    called = scope.value(call.func)
    if is_module(called):
        homes = {tensor.device for tensor in all_tensors(called)}
        if len(homes) > 1:  # it computes on each of them: a value need not be where its argument was
            return {}
        found = _passed_from_elsewhere(scope, call, homes, given)
    for each in entered:
        values, written = locals_of(each), arguments_of(each) or {}
        found |= {id(values[name]): ast.unparse(part) for name, part in written.items() if is_tensor(values.get(name))}
    return found


def _entered(frame: FrameType) -> list[FrameType]:
    """Return the frames of the library from the innermost one to the one that the user called."""
    found = []
    for owner, each in stack(frame):
        if owner is Owner.USER:
            break
        found.append(each)
    return found


def _passed_from_elsewhere(
    scope: Scope, call: ast.Call, homes: set[torch.device], given: Sequence[torch.Tensor]
) -> dict[int, str]:
    """Return the one argument that is not on the device of the module, for the one tensor inside that is not either."""
    passed = []
    for part in arguments_in(call):
        value = scope.value(part)
        if is_tensor(value) and value.device not in homes:
            passed.append(part)
    inside = {id(tensor) for tensor in given if tensor.device not in homes}
    if homes and len(inside) == 1 and len(passed) == 1:
        return {inside.pop(): ast.unparse(passed[0])}
    return {}


def computed(text: str) -> str:
    """Return the one argument of a module or library call that is computed on the line, so that it has no name."""
    kinds, call = ast.Call | ast.BinOp | ast.UnaryOp | ast.Subscript, parsed_operation(text)
    found = [part for part in arguments_in(call) if isinstance(part, kinds) and names_in(part)]
    if len(found) == 1 and not has_stars(call):
        return ast.unparse(found[0])
    return ""


def is_attribute_or_item(text: str) -> bool:
    """Return whether an expression can be repeated, because it only reads an attribute or an item."""
    node = parsed_operation(text)
    return isinstance(node, ast.Attribute | ast.Subscript) and is_place(node)
