"""Class and fields of objects, whatever their classes define, and which objects they are restored for."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name, fields_of, find_class_attribute, module_name, mro_of, names_of
from devwidget.capture.restore.keepers import Keeper

_HEAP_TYPE = 1 << 9
"""Flag of classes that are not built into the interpreter (Py_TPFLAGS_HEAPTYPE)."""
_set_class = vars(object)["__class__"].__set__
_flags = vars(type)["__flags__"].__get__

_PYTHONS = (types.GetSetDescriptorType, types.MemberDescriptorType)
"""What provides `__dict__` if no class overrides it."""
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


class FieldValues(NamedTuple):
    """The fields of one object.

    Attributes:
        kind: its class.
        namespace: its `__dict__`, restored as any dict.
        slots: name and value of each slot that has one.
    """

    kind: type
    namespace: dict[str, Any] | None
    slots: dict[str, Any]


def _read_fields(owner: Any) -> FieldValues:
    return FieldValues(type(owner), _namespace_of(owner), dict(_read_slots(owner)))


def _read_slots(owner: Any) -> Iterator[tuple[str, Any]]:
    for name, member in _slots_of(type(owner)):
        try:
            yield name, member.__get__(owner)
        except AttributeError:  # it is empty
            continue


def _write_fields(owner: Any, before: FieldValues) -> None:
    """Write the class first: it decides which fields exist."""
    if type(owner) is not before.kind:
        _set_class(owner, before.kind)
    if _namespace_of(owner) is not before.namespace:
        object.__setattr__(owner, "__dict__", before.namespace)
    now = dict(_read_slots(owner))
    for name, member in _slots_of(before.kind):
        if name in before.slots:
            member.__set__(owner, before.slots[name])
        elif name in now:
            member.__delete__(owner)


def _same_fields(now: FieldValues, before: FieldValues) -> bool:
    if now.kind is not before.kind or now.namespace is not before.namespace or now.slots.keys() != before.slots.keys():
        return False
    return all(now.slots[name] is value for name, value in before.slots.items())


def _list_values(before: FieldValues) -> Iterable[Any]:
    return before.namespace, before.kind, *before.slots.values()


FIELDS = Keeper(_read_fields, _write_fields, _same_fields, _list_values)
"""The class, the `__dict__` and the slots of an object."""


def _namespace_of(value: Any) -> dict[str, Any] | None:
    """Return the object's `__dict__`; None without one, or if the class overrides it."""
    found = find_class_attribute(type(value), "__dict__")
    namespace = found.__get__(value) if issubclass(type(found), _PYTHONS) else None
    return namespace if type(namespace) is dict else None


def has_slots(kind: type) -> bool:
    """Return whether a class written in Python gave it slots."""
    return next(_slots_of(kind), None) is not None


def _slots_of(kind: type) -> Iterator[tuple[str, Any]]:
    for base in mro_of(kind):
        own = names_of(base)
        if "__slots__" in own:
            yield from ((name, member) for name, member in own.items() if type(member) is types.MemberDescriptorType)


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
    if is_own_package(_module_of(kind)) or issubclass(kind, nn.Module | torch.optim.Optimizer):
        return False
    return any(_stands_outside(type(each)) for _, each in fields_of(value))


def is_outside_object(kind: type) -> bool:
    """Return whether instances of a Python class stand for something outside. Instances of tools are skipped."""
    return is_heap(kind) and _stands_outside(kind) and _top_of(kind) not in _TOOLS and not issubclass(kind, type)


def _stands_outside(kind: type) -> bool:
    return any(_top_of(base) in _OUTSIDE for base in mro_of(kind))


def is_own_class(kind: type) -> bool:
    """Return whether the program itself defined a class."""
    return is_heap(kind) and is_own_package(_module_of(kind))


def is_own_package(module: str) -> bool:
    """Return whether a module belongs to the program: not Python, torch, a tool or an installed package."""
    top = module.partition(".")[0]
    return top != "torch" and top not in sys.stdlib_module_names and top not in _TOOLS and not _is_installed(top)


def is_heap(kind: type) -> bool:
    """Return whether a class is not built into the interpreter or an extension, so that its attributes can be set."""
    return bool(_flags(kind) & _HEAP_TYPE)


def _is_installed(top: str) -> bool:
    """Return whether a package was installed, so that it is not the user's; never for `__main__`."""
    file = getattr(sys.modules.get(top), "__file__", None)
    return top != "__main__" and isinstance(file, str) and ("site-packages" in file or "dist-packages" in file)


def _module_of(kind: type) -> str:
    """Return the name of the module that defines a class; C stores it differently from Python."""
    return module_name(kind) or "builtins"


def _top_of(kind: type) -> str:
    return _module_of(kind).partition(".")[0]
