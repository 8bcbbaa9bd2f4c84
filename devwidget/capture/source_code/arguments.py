"""Where a misplaced tensor entered the program: arguments as callers wrote them, and variables of the outermost function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from devwidget.capture.object_fields import copy_items, dict_of, find_class_attribute, is_a, is_among, is_exactly
from devwidget.capture.source_code.call_sites import RawSite, raw_site, site_of, to_site
from devwidget.capture.source_code.classes import list_written
from devwidget.capture.source_code.expressions import UNKNOWN, Scope, argument_named, running_node
from devwidget.capture.source_code.stack import Owner, is_users_code, locals_of, stack, user_frame
from devwidget.capture.tensors import DEVICE, is_module, is_tensor, named_tensors
from devwidget.records.syntax import arguments_in, name_of_called
from devwidget.records.trace import Given, LeftOutDevice, Taken


def arguments_of(frame: FrameType) -> dict[str, ast.expr] | None:
    """Return what the calling user frame wrote for the parameters of a call.

    None if it called something else, or used `*args` or `**kwargs`.
    """
    above = user_frame(frame.f_back)
    call = running_node(above)
    if above is None or not isinstance(call, ast.Call) or has_stars(call):
        return None
    scope, code = Scope(above), frame.f_code
    names = code.co_varnames[: code.co_argcount]
    if names and _is_called_on(call, scope, locals_of(frame).get(names[0], UNKNOWN), code.co_name):
        names = names[1:]
    elif not _is_written_as(call, scope, code):
        return None
    written = dict(zip(names, call.args, strict=False))
    return written | {str(keyword.arg): keyword.value for keyword in call.keywords}


def has_stars(call: ast.AST | None) -> bool:
    """Return whether a call passes `*args` or `**kwargs`."""
    stars = [each for each in arguments_in(call) if isinstance(each, ast.Starred)]
    return bool(stars) or None in [keyword.arg for keyword in getattr(call, "keywords", ())]


def _is_called_on(call: ast.Call, scope: Scope, first: Any, name: str) -> bool:
    """Return whether the object of a method call is the first argument: `model(x)` runs `forward(self, x)`."""
    if first is UNKNOWN:
        return False
    match call.func:
        case ast.Attribute(value=owner, attr=method) if method == name and scope.value(owner) is first:
            return True
    return scope.value(call.func) is first


def _is_written_as(call: ast.Call, scope: Scope, code: CodeType) -> bool:
    """Return whether a function is the one that the user wrote, or its decorated form; for one of a library, by its name."""
    if not is_users_code(code):
        return name_of_called(call) == code.co_name
    return any(function.__code__ is code for function in list_written(scope.value(call.func)))


def where_left_out(frame: FrameType | None, keyword: str) -> Iterator[RawSite]:
    """Yield the user's line that omitted an argument which the called functions pass on.

    For example `table(8)` if `table(n, device=None)` calls `torch.zeros(n, device=device)`; None if the argument was passed.
    """
    inner = user_frame(frame)
    node = argument_named(running_node(inner), keyword)
    while inner is not None and isinstance(node, ast.Name) and _is_none(inner, node.id):
        written, above = arguments_of(inner), user_frame(inner.f_back)
        if written is None or above is None:
            return
        if node.id not in written:
            yield site_of(above)
            return
        inner, node = above, written[node.id]


def where_library_decides(frame: FrameType | None, device: torch.device) -> LeftOutDevice | None:
    """Return the user's call of a library function whose default for `device`, left out there, is a device of this type."""
    for owner, each in stack(frame):
        if owner is not Owner.LIBRARY or "device" not in _parameters(each.f_code):
            continue
        value, written = str(locals_of(each).get("device")), arguments_of(each)
        site = to_site(raw_site(user_frame(each.f_back)))
        if site is not None and written is not None and "device" not in written and value.partition(":")[0] == device.type:
            return LeftOutDevice(site, each.f_code.co_name, value)
    return None


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_none(frame: FrameType, name: str) -> bool:
    """Return whether a name is a parameter of the function that a frame runs, and None."""
    return name in _parameters(frame.f_code) and locals_of(frame).get(name, name) is None


def where_given(frames: Sequence[FrameType], family: list[torch.Tensor], target: torch.device) -> Given | None:
    """Return the argument of a module through which a tensor, or one that it was computed from, came in.

    All parameters of the module are on another GPU. Any other GPU would do for it.

    Args:
        frames: frames of the user, innermost first.
        family: the tensor, and the tensors that it was computed from.
        target: the device that it should have been on.
    """
    if "cpu" in (target.type, family[0].device.type):
        return None
    for frame in reversed(frames):
        called = next((locals_of(frame).get(name) for name in _parameters(frame.f_code)), None)
        above = user_frame(frame.f_back) if is_module(called) else None
        call = running_node(above)
        if above is None or not isinstance(call, ast.Call) or Scope(above).value(call.func) is not called:
            continue
        devices = {parameter.device for _, parameter in named_tensors(called, "_parameters")}
        if devices != {target}:
            continue
        for each in arguments_in(call):
            if is_among(Scope(above).value(each), family):
                return Given(to_site(site_of(above)), ast.unparse(each), ast.unparse(call.func))
    return None


# Variables of the outermost function that has the tensor.


DEEPEST = 3
"""Nesting of containers: a list of dicts, such as a detector's targets; a graph keeps its fields in an object."""


def variables_taken(frames: Sequence[FrameType], family: Sequence[torch.Tensor], target: torch.device) -> Taken | None:
    """Return the variables of the outermost of these frames that has one of the tensors in its own variable.

    Args:
        frames: frames of the user, innermost first.
        family: the misplaced tensor and the tensors that it was computed from.
        target: the device that it should have been on.
    """
    for frame in reversed(frames):
        variables = {name: value for name, value in locals_of(frame).items() if name.isidentifier()}
        variables.pop("self", None)
        holding = [name for name, value in variables.items() if _holds_one(value, family)]
        if not holding:
            continue
        kinds = []
        for name in dict.fromkeys((*holding, *variables)):
            kind = _kind(variables[name], family[0].device)
            if kind:
                kinds.append((name, kind))
        above = to_site(raw_site(user_frame(frame.f_back)))
        return Taken(to_site(raw_site(frame)), tuple(holding), tuple(kinds), _name_of(frame, target), above)
    return None


def _tensors(value: Any, depth: int = DEEPEST) -> list[torch.Tensor]:
    if is_tensor(value):
        return [value]
    found: list[torch.Tensor] = []
    if depth:
        for part in _parts(value):
            found += _tensors(part, depth - 1)
    return found


def _parts(value: Any) -> list[Any]:
    """Return the parts of plain containers, and of objects with their own `to`. Other user classes are skipped."""
    if is_exactly(value, (list, tuple)):
        return list(value)
    if type(value) is dict or _has_move(value):
        fields = value if type(value) is dict else dict_of(value)
        return [part for _, part in copy_items(fields)]
    return []


def _has_move(value: Any) -> bool:
    """Return whether an object has its own `to`, as graphs and tokenizer batches do. Modules do not count as data."""
    fields = dict_of(value) if not is_a(value, type) else {}
    return bool(fields) and not is_module(value) and type(find_class_attribute(type(value), "to")) is FunctionType


def _kind(value: Any, device: torch.device) -> str:
    """Return what is to be moved, and how; "" for other values, and if a part of it is already elsewhere."""
    tensors = _tensors(value)
    if not tensors or any(tensor.device != device for tensor in tensors):
        return ""
    if is_tensor(value):
        return "tensor"
    if _has_move(value):
        return "object"
    parts = _parts(value)
    if type(value) is dict:
        return _kind_of_dict(parts)
    if all(map(is_tensor, parts)):
        return type(value).__name__
    if type(value) is list and all(type(part) is dict and _kind(part, device) == "dict" for part in parts):
        return "list of dicts"
    return ""


def _kind_of_dict(parts: list[Any]) -> str:
    """Return the kind of a dict. A dict of dicts of tensors has none: moving its values would not move the inner ones."""
    if all(map(is_tensor, parts)):
        return "dict"
    for part in parts:
        stays = not is_tensor(part) and not _has_move(part)
        if stays and _tensors(part):
            return ""
    return "dict of more"


def _holds_one(value: Any, family: Sequence[torch.Tensor]) -> bool:
    return any(is_among(each, family) for each in _tensors(value))


def _name_of(frame: FrameType, target: torch.device) -> str:
    """Return how the function writes the right device: a variable, `self.device`, a global; "" without one."""
    own = locals_of(frame)
    kept = ((f"self.{name}", value) for name, value in copy_items(dict_of(own.get("self"))) if type(name) is str)
    for name, value in (*own.items(), *kept, *copy_items(frame.f_globals)):
        if not name.startswith("_") and _means(value, target):
            return str(name)
    return ""


def _means(value: Any, target: torch.device) -> bool:
    if type(value) is not DEVICE and not (type(value) is str and value.startswith(target.type)):
        return False
    return str(value) == str(target) or (str(value) == target.type and not target.index)
