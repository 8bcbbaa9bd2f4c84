"""Variables of a frame: what its code calls a value."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import is_module, own, own_tensors, registered_entries
from devwidget.capture.object_fields import copy_items, dict_of, is_a, is_scalar, parts_of
from devwidget.capture.source_code.call_sites import globals_used, locals_of
from devwidget.capture.source_code.value_paths import fields_of_class
from devwidget.capture.tensors import is_tensor

MOST_ITEMS = 64
"""Items of a container in which a value is looked for."""
DEEPEST = 2
"""Containers inside a container in which it is looked for."""
MOST_MODULES = 10_000


def name_in(frame: FrameType, matches: Any) -> str:
    """A variable of a frame, an attribute of one or an item in one, whose value matches; the simplest there is."""
    named = {**globals_used(frame), **locals_of(frame)}
    scopes = {name: value for name, value in named.items() if not name.startswith("@")}  # `@py_assert1` is pytest's
    for name, value in scopes.items():
        if matches(value):
            return name
    for name, value in scopes.items():
        for suffix, part in _parts(value):
            if matches(part):
                return name + suffix
    for name, value in scopes.items():
        for suffix, tensor in deep_tensors(value) if is_module(value) else _items(value, DEEPEST):
            if matches(tensor):
                return name + suffix
    return ""


def path_text(frame: FrameType, wanted: object) -> str:
    """How a frame's code writes an object of any kind: `optimizer`, `checkpoint['model']`, `run.model`; "" if it cannot."""
    variables = {**globals_used(frame), **locals_of(frame)}
    for name, value in variables.items():
        if value is wanted:
            return name
    for name, value in variables.items():
        for suffix, part in _members(value):
            if part is wanted:
                return name + suffix
    return ""


def _members(value: Any) -> list[tuple[str, Any]]:
    """Items of a container and attributes of an object."""
    if type(value) is dict:
        items = itertools.islice(copy_items(value), MOST_ITEMS)
        return [(f"[{key!r}]", part) for key, part in items if is_scalar(key)]
    if type(value) is list or type(value) is tuple:
        return [(f"[{index}]", part) for index, part in enumerate(value[:MOST_ITEMS])]
    if not is_a(dict_of(value), dict):  # a class, whose fields are no dict
        return []
    return [(f".{name}", part) for name, part in copy_items(dict_of(value))[:MOST_ITEMS]]


def _items(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Tensors in nested containers: `['args'][0]`."""
    pairs: list[tuple[str, Any]] = []
    if type(value) is dict:
        pairs = [(f"[{key!r}]", part) for key, part in itertools.islice(copy_items(value), MOST_ITEMS) if is_scalar(key)]
    elif type(value) is list or type(value) is tuple:
        pairs = [(f"[{index}]", part) for index, part in enumerate(value[:MOST_ITEMS])]
    else:
        pairs = _fields(value)
    for suffix, part in pairs:
        if is_tensor(part):
            yield suffix, part
        elif depth:
            yield from ((suffix + inner, tensor) for inner, tensor in _items(part, depth - 1))


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
            step = f"[{name}]" if name.isdigit() else f".{name}" if name.isidentifier() else ""
            if step:
                waiting.append((path + step, child))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes of a module or an object, and items of a container, one level deep."""
    if is_module(value):
        for fields in (
            registered_entries(value, "_parameters"),
            registered_entries(value, "_buffers"),
            list(own(value).items()),
        ):
            yield from ((f".{name}", part) for name, part in fields if is_tensor(part))
    elif is_a(value, dict):
        first = list(itertools.islice(dict.items(value), MOST_ITEMS))
        yield from ((f"[{key!r}]", part) for key, part in first if is_tensor(part) and is_scalar(key))
    elif type(value) is list or type(value) is tuple:
        yield from ((f"[{index}]", part) for index, part in enumerate(value[:MOST_ITEMS]) if is_tensor(part))
    elif fields := _fields(value):
        yield from ((name, part) for name, part in fields if is_tensor(part))
    elif is_a(dict_of(value), dict):  # an object: not a class, whose fields are no dict
        yield from ((f".{name}", part) for name, part in copy_items(dict_of(value)) if is_tensor(part))


def _fields(value: Any) -> list[tuple[str, Any]]:
    """The fields of a named tuple, or what `functools.partial` keeps; [] for anything else."""
    if is_a(value, tuple) and type(value) is not tuple:
        names = fields_of_class(type(value))
        return [(f".{name}", part) for name, part in zip(names, parts_of(value), strict=False)]
    if type(value) is not functools.partial:
        return []
    given = [(f".keywords[{key!r}]", part) for key, part in copy_items(value.keywords) if is_scalar(key)]
    return [*given, *((f".args[{index}]", part) for index, part in enumerate(value.args))]


def lookup(frame: FrameType, name: str) -> Any:
    """The value of a name, as the frame's code finds it; None if it has none."""
    return locals_of(frame).get(name, dict.get(frame.f_globals, name))
