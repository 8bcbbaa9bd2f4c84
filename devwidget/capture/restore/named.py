"""Objects that are reported if they change, and not restored: code, classes, and objects for something outside of Python."""

from __future__ import annotations

import functools
import io
import itertools
import types
import weakref
from typing import Any

import torch

from devwidget.capture.modules import TENSOR_GROUPS, Group, registered_entries
from devwidget.capture.object_fields import (
    find_class_attribute,
    is_a,
    is_among,
    is_exactly,
    is_heap,
    is_scalar,
    module_name,
    mro_of,
)
from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.restore.keepers import Keeper
from devwidget.capture.source_code.stack import is_users_class
from devwidget.capture.walk import children

_CODE = (
    *(types.FunctionType, types.MethodType, types.BuiltinMethodType, staticmethod, classmethod, property, functools.partial),
    *(types.CellType, type(functools.lru_cache(len))),
)


def _read_parts(owner: Any) -> dict[str, Any]:
    """Read the parts, and the bases of a class; no annotations, which Python creates on first access."""
    parts = {path: part for path, part in children(owner) if not path.startswith(".__annot")}
    if is_a(owner, type):
        parts[""] = mro_of(owner)
    return parts


def _same_parts(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now.keys() == before.keys() and all(_is_same(now[name], part) for name, part in before.items())


def _is_same(now: Any, before: Any) -> bool:
    """Compare by identity, numbers and texts by value. Replacements by a recording are ignored."""
    if now is before or _is_patched(now) or _is_patched(before):
        return True
    return type(now) is type(before) and is_scalar(now) and bool(now == before)


def _is_patched(value: Any) -> bool:
    if is_exactly(value, (staticmethod, classmethod)):
        return _is_patched(value.__func__)
    return issubclass(type(value), PatchedFunction)


def _parts_of_program(before: dict[str, Any]) -> list[Any]:
    """Return parts that belong to the program, not to the library."""
    return [part for part in before.values() if _is_programs(type(part))]


def _is_programs(kind: type) -> bool:
    return is_users_class(kind) or (is_heap(kind) and issubclass(kind, torch.Tensor | torch.nn.Module))


CODE = Keeper(_read_parts, same=_same_parts, parts=dict.values)
"""A function or a class: what its parts hold is restored; a replaced part is reported."""
OUTSIDE = Keeper(_read_parts, same=_same_parts, parts=_parts_of_program)
"""An object that stands for something outside, or has a field that does."""
REFERENCE = Keeper(lambda owner: (weakref.ref.__call__(owner),), parts=iter)
"""A weak reference leads to an object."""


def _read_scripted(owner: Any) -> list[Any]:
    """Return parameters, buffers and children of a scripted module, which are in C++."""
    groups: tuple[Group, ...] = (*TENSOR_GROUPS, "_modules")
    return [part for group in groups for _, part in registered_entries(owner, group)]


SCRIPTED = Keeper(_read_scripted, parts=iter)
"""Tensors of scripted modules are restored; other attributes are not read."""


def _file_position(file: Any) -> Any:
    """Return the position in a file; None for a pipe or a terminal."""
    if file.closed:
        return "closed"
    try:
        return file.tell()
    except (OSError, ValueError):
        return None


_FILES = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper, io.StringIO, io.BytesIO)
_FILE = Keeper(_file_position, same=_is_same)
_COUNT = Keeper(repr, same=_is_same)
_ITERATOR = Keeper(lambda iterator: iterator.__length_hint__(), same=_is_same)


def named_keeper(kind: type) -> Keeper | None:
    """Return how classes, callables, references and objects written in C are compared; None if a change cannot be seen."""
    if issubclass(kind, type) or is_among(kind, _CODE):
        return CODE
    if issubclass(kind, weakref.ref):
        return REFERENCE
    if is_among(kind, _FILES):
        return _FILE
    if kind is itertools.count:
        return _COUNT
    if module_name(kind) == "builtins" and find_class_attribute(kind, "__length_hint__") is not None:
        return _ITERATOR
    return None
