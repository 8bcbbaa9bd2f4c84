"""Variables of a frame: what its code calls a value."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import is_module, own, own_tensors, registered_entries
from devwidget.capture.object_fields import copy_items, dict_of, find_class_attribute, is_a, is_scalar, parts_of
from devwidget.capture.source_code.call_sites import globals_used, locals_of
from devwidget.records.syntax import parsed_expression

MOST_ITEMS = 64
"""Items of a container in which a value is looked for."""
DEEPEST = 2
"""Containers inside a container in which it is looked for."""
MOST_MODULES = 10_000


def name_in(frame: FrameType, wanted: object) -> str:
    """A variable of a frame, an attribute of one or an item in one, that is an object; the simplest there is, "" for none."""
    named = {**globals_used(frame), **locals_of(frame)}
    variables = [(name, value) for name, value in named.items() if not name.startswith("@")]  # `@py_assert1` is pytest's
    for look in (_itself, _list_parts, _list_deep_parts):
        for name, value in variables:
            for suffix, part in look(value):
                if part is wanted:
                    return name + suffix
    return ""


def holds(value: Any, wanted: object) -> bool:
    """Whether a value is an object, or has it in an attribute or an item."""
    places = (*_itself(value), *_list_parts(value), *_list_deep_parts(value))
    return any(part is wanted for _, part in places)


def _itself(value: Any) -> Iterator[tuple[str, Any]]:
    yield "", value


def _list_parts(value: Any) -> list[tuple[str, Any]]:
    """Attributes of an object and items of a container, one level deep, as code writes them behind its name."""
    if is_module(value):
        parts = [*registered_entries(value, "_parameters"), *registered_entries(value, "_buffers"), *own(value).items()]
        return [(f".{name}", part) for name, part in parts]
    if _is_container(value):
        return _list_items(value)
    if is_a(value, type):
        return []
    return [(f".{name}", part) for name, part in copy_items(dict_of(value))]


def _is_container(value: Any) -> bool:
    return is_a(value, (dict, tuple)) or type(value) is list or type(value) is functools.partial


def _list_items(value: Any) -> list[tuple[str, Any]]:
    if type(value) is functools.partial:
        given = [(f".keywords[{key!r}]", part) for key, part in copy_items(value.keywords) if is_scalar(key)]
        return [*given, *((f".args[{index}]", part) for index, part in enumerate(value.args))]
    if is_a(value, dict):
        items = itertools.islice(copy_items(value), MOST_ITEMS)
        return [(f"[{key!r}]", part) for key, part in items if is_scalar(key)]
    if type(value) is list or type(value) is tuple:
        return [(f"[{index}]", part) for index, part in enumerate(value[:MOST_ITEMS])]
    return [(f".{name}", part) for name, part in named_parts(value)]


def named_parts(value: Any) -> list[tuple[str, Any]]:
    """The fields of a named tuple; [] for anything else."""
    if is_a(value, tuple):
        names = find_class_attribute(type(value), "_fields")
    else:
        names = None
    if type(names) is tuple:
        return list(zip(names, parts_of(value), strict=False))
    return []


def _list_deep_parts(value: Any, depth: int = DEEPEST) -> Iterator[tuple[str, Any]]:
    """Tensors of a module and of those below it, and what is in nested containers: `['args'][0]`."""
    if is_module(value):
        yield from deep_tensors(value) if depth == DEEPEST else ()
        return
    for suffix, part in _list_items(value) if _is_container(value) else ():
        yield suffix, part
        if depth:
            yield from ((suffix + inner, each) for inner, each in _list_deep_parts(part, depth - 1))


def deep_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers of a module and of those below it, as code would write them: `.layers[0].weight`."""
    waiting: list[tuple[str, nn.Module]] = [("", module)]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_MODULES:
        path, owner = waiting.pop(0)
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        yield from ((f"{path}.{name}", tensor) for name, tensor in own_tensors(owner).items() if name.isidentifier())
        for name, child in registered_entries(owner, "_modules"):
            if name.isdigit():
                step = f"[{name}]"
            elif name.isidentifier():
                step = f".{name}"
            else:
                step = ""
            if step:
                waiting.append((path + step, child))


def lookup(frame: FrameType, name: str) -> Any:
    """The value of a name, as the frame's code finds it; None if it has none."""
    return locals_of(frame).get(name, dict.get(frame.f_globals, name))


def path_of(text: str) -> tuple[str, tuple[Any, ...]]:
    """`batch` and `("ids", 0)` of `batch['ids'][0]`: the variable, then items and attributes, outermost first."""
    node, keys = parsed_expression(text) if text else None, []
    while isinstance(node, ast.Subscript | ast.Attribute):
        keys.append(getattr(node.slice, "value", None) if isinstance(node, ast.Subscript) else node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else ""), tuple(reversed(keys))
