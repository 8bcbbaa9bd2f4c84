"""Class and fields of objects, whatever their classes define, and which objects they are restored for."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name, dict_of, fields_of, is_heap, module_name, mro_of, slots_of
from devwidget.capture.restore.keepers import Keeper
from devwidget.capture.source_code.stack import is_users_class

_set_class = vars(object)["__class__"].__set__
_OF_TORCH = (
    *("torch.nn", "torch.optim", "torch.amp", "torch.cuda.amp", "torch.distributions", "torch.ao", "torch.autograd"),
    "torch.utils.data",
)
_OUTSIDE = frozenset({
    "_ctypes", "_io", "_queue", "_socket", "_sqlite3", "_ssl", "_thread", "asyncio", "concurrent", "ctypes", "http", "io",
    "logging", "mmap", "multiprocessing", "queue", "select", "selectors", "socket", "sqlite3", "ssl", "subprocess",
    "tempfile", "threading", "urllib", "zipfile",
})  # fmt: skip
"""Python modules whose objects stand for something outside of them: restoring their fields would not restore it."""
_TOOLS = frozenset({"devwidget", "IPython", "ipykernel", "ipywidgets", "traitlets", "_pytest", "hypothesis"})
"""Packages that show the program and are not part of it."""


_EMPTY = object()


class FieldValues(NamedTuple):
    """The fields of one object.

    Attributes:
        kind: its class.
        namespace: its `__dict__`, restored as any dict.
        slots: name and value of each slot; `_EMPTY` for one without a value.
    """

    kind: type
    namespace: dict[str, Any]
    slots: dict[str, Any]


def _read_fields(owner: Any) -> FieldValues:
    return FieldValues(type(owner), dict_of(owner), {name: _read_slot(owner, slot) for name, slot in slots_of(type(owner))})


def _read_slot(owner: Any, slot: types.MemberDescriptorType) -> Any:
    try:
        return slot.__get__(owner)
    except AttributeError:
        return _EMPTY


def _write_fields(owner: Any, before: FieldValues) -> None:
    """Write the class first: it decides which fields exist."""
    if type(owner) is not before.kind:
        _set_class(owner, before.kind)
    if not _same_namespaces(dict_of(owner), before.namespace):
        object.__setattr__(owner, "__dict__", before.namespace)
    for name, slot in slots_of(before.kind):
        if before.slots[name] is not _EMPTY:
            slot.__set__(owner, before.slots[name])
        elif _read_slot(owner, slot) is not _EMPTY:
            slot.__delete__(owner)


def _same_fields(now: FieldValues, before: FieldValues) -> bool:
    if now.kind is not before.kind or not _same_namespaces(now.namespace, before.namespace):
        return False
    return all(now.slots[name] is value for name, value in before.slots.items())


def _same_namespaces(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Return whether a `__dict__` is the same object, or there is none."""
    return now is before or not (now or before)


def _list_values(before: FieldValues) -> Iterable[Any]:
    return before.namespace, before.kind, *before.slots.values()


FIELDS = Keeper(_read_fields, _write_fields, _same_fields, _list_values)
"""The class, the `__dict__` and the slots of an object."""


def has_kept_fields(kind: type) -> bool:
    """Return whether the fields of instances are restored: for Python classes that stand for nothing outside of Python."""
    if kind is types.SimpleNamespace:
        return True
    if not is_heap(kind) or issubclass(kind, type | types.ModuleType):
        return False
    if issubclass(kind, nn.Module | torch.optim.Optimizer):
        return True
    return all(_has_plain_fields(base) for base in mro_of(kind))


def _has_plain_fields(base: type) -> bool:
    module = _module_of(base)
    if _top_of(base) == "torch":
        is_iterator = f"{module}.{class_name(base)}" == torch_internals.LOADER_ITERATOR  # it speaks with processes
        return module.startswith(_OF_TORCH) and not is_iterator
    return _top_of(base) not in _OUTSIDE | _TOOLS


def leads_outside(value: Any) -> bool:
    """Return whether an object of a library has a field that stands for something outside, such as a lock or a file."""
    kind = type(value)
    if is_users_class(kind) or issubclass(kind, nn.Module | torch.optim.Optimizer):
        return False
    return any(_stands_outside(type(each)) for _, each in fields_of(value))


def is_outside_object(kind: type) -> bool:
    """Return whether instances of a Python class stand for something outside. Instances of tools are skipped."""
    return is_heap(kind) and _stands_outside(kind) and _top_of(kind) not in _TOOLS and not issubclass(kind, type)


def _stands_outside(kind: type) -> bool:
    return any(_top_of(base) in _OUTSIDE for base in mro_of(kind))


def _module_of(kind: type) -> str:
    """Return the name of the module that defines a class; C stores it differently from Python."""
    return module_name(kind) or "builtins"


def _top_of(kind: type) -> str:
    return _module_of(kind).partition(".")[0]
