"""How objects of each kind are kept: containers, arrays, fields, global variables, and what is only reported if it changes."""

from __future__ import annotations

import array
import functools
import io
import itertools
import operator
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import (
    class_name,
    dict_of,
    fields_of,
    find_class_attribute,
    is_a,
    is_among,
    is_exactly,
    is_heap,
    is_scalar,
    module_name,
    mro_of,
    slots_of,
)
from devwidget.capture.patching.registry import PatchedFunction
from devwidget.capture.restore.keepers import Keeper
from devwidget.capture.source_code.stack import is_users_class, is_users_module
from devwidget.capture.tensors import TENSOR_GROUPS, Group, registered_entries
from devwidget.capture.walk import children

ALL = slice(None)
MOST_BYTES = 16 << 20
"""Bytes copied of all arrays together; further arrays are skipped."""


def _same_items(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _same_entries(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    return _same_items(now, before) and all(map(operator.is_, now.values(), before.values()))


def _same_members(now: set[Any], before: set[Any]) -> bool:
    return len(now) == len(before) and set(map(id, now)) == set(map(id, before))


def _make_writer(clear: Callable[[Any], object], fill: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    def write(owner: Any, content: Any) -> None:
        clear(owner)
        fill(owner, content)

    return write


def _make_pairs_keeper(base: Any) -> Keeper:
    """Return how dicts of subclasses are kept: as their keys and values in turn."""

    def fill(owner: Any, content: list[Any]) -> None:
        for key, value in zip(content[::2], content[1::2], strict=True):
            base.__setitem__(owner, key, value)

    return Keeper(lambda owner: list(chain(*base.items(owner))), _make_writer(base.clear, fill), _same_items, iter)


_ENTRIES = Keeper(
    dict.copy,
    _make_writer(dict.clear, dict.update),  # from an exact dict, so that neither hashes nor `__eq__` of the keys are asked
    _same_entries,
    lambda before: chain(before, before.values()),
)
_KINDS: tuple[tuple[type, Keeper], ...] = (
    (OrderedDict, _make_pairs_keeper(OrderedDict)),
    (dict, _make_pairs_keeper(dict)),
    (list, Keeper(list.copy, lambda owner, items: list.__setitem__(owner, ALL, items), _same_items, iter)),
    (tuple, Keeper(lambda owner: tuple.__getitem__(owner, ALL), parts=iter)),
    (deque, Keeper(lambda owner: list(deque.__iter__(owner)), _make_writer(deque.clear, deque.extend), _same_items, iter)),
    (set, Keeper(lambda owner: set().union(owner), _make_writer(set.clear, set.update), _same_members, iter)),
    (frozenset, Keeper(lambda owner: set().union(owner), parts=iter)),
)
"""Subclasses before their bases."""
_BLOCK = Keeper(lambda block: block[ALL], lambda block, copy: block.__setitem__(ALL, copy), operator.eq)
"""Memory of Python."""


def container_keeper(kind: type) -> Keeper | None:
    """Return how containers of a class are kept; None if it is not a container."""
    if kind is dict:  # a copy of a subclass would ask for its own `__iter__` and `keys`
        return _ENTRIES
    if kind is bytearray or kind is array.array:
        return _BLOCK
    return next((keeper for base, keeper in _KINDS if issubclass(kind, base)), None)


def is_array(kind: type) -> bool:
    """Return whether instances of a class are NumPy's arrays."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def plain_array(values: Any) -> Any:
    """Return an array without its subclass, whose methods are the user's."""
    numpy = sys.modules["numpy"]
    return numpy.ndarray.view(values, numpy.ndarray)


def _same_arrays(now: Any, before: Any) -> bool:
    """Return whether arrays have equal bytes, which are addresses in an array of objects."""
    return bool(now.shape == before.shape and now.dtype == before.dtype and now.tobytes() == before.tobytes())


def _write_array(values: Any, copy: Any) -> None:
    numpy = sys.modules["numpy"]
    if numpy.ndarray.shape.__get__(values) != copy.shape:
        numpy.ndarray.resize(values, copy.shape, refcheck=False)
    numpy.copyto(plain_array(values), copy)


def _objects_in(copy: Any) -> Iterable[Any]:
    if copy.dtype.hasobject:
        objects: list[Any] = copy.ravel().tolist()
        return objects
    return ()


ARRAY = Keeper(lambda values: plain_array(values).copy(), _write_array, _same_arrays, _objects_in)
"""The content of an array."""


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


_UNSET = object()


class Variable(NamedTuple):
    """A name in a namespace, and its value."""

    namespace: dict[str, Any]
    name: str
    value: Any

    def has_changed(self) -> bool:
        """Return whether the value has changed. Imports are not undone, and functions replaced by recordings are ignored."""
        now = dict.get(self.namespace, self.name, _UNSET)
        return now is not self.value and not _stays(now) and not _stays(self.value)

    def write(self) -> None:
        """Restore the binding, or delete a new name."""
        if self.value is _UNSET:
            dict.pop(self.namespace, self.name, None)
        else:
            dict.__setitem__(self.namespace, self.name, self.value)


def _stays(value: Any) -> bool:
    return isinstance(value, types.ModuleType | PatchedFunction)


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return names of variables, modules and attributes in the code of a function and its inner functions."""
    inner = [names_in(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return frozenset(code.co_names).union(*inner)


def _read_variables(function: types.FunctionType) -> list[Variable]:
    """Return variables of the function's module, and of other program modules that it may reach by `module.name`."""
    names, own = names_in(function.__code__), function.__globals__
    if not _is_programs_namespace(own):
        return []
    modules = [*(dict.get(own, name) for name in names), *map(sys.modules.get, names)]
    reached = [vars(module) for module in modules if type(module) is types.ModuleType]
    namespaces = {id(namespace): namespace for namespace in (own, *filter(_is_programs_namespace, reached))}
    return [Variable(namespace, name, dict.get(namespace, name, _UNSET)) for namespace in namespaces.values() for name in names]


def _is_programs_namespace(namespace: dict[str, Any]) -> bool:
    name = dict.get(namespace, "__name__")
    return type(name) is not str or is_users_module(name)


def _same_variables(now: list[Variable], before: list[Variable]) -> bool:
    return not any(each.has_changed() for each in before)


def _write_variables(function: types.FunctionType, before: list[Variable]) -> None:
    for each in before:
        if each.has_changed():
            each.write()


def _list_bound(before: list[Variable]) -> list[Any]:
    return [each.value for each in before if each.value is not _UNSET]


GLOBALS = Keeper(_read_variables, _write_variables, _same_variables, _list_bound)
"""The global variables that a function uses."""


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
    return [part for part in before.values() if _is_programs_class(type(part))]


def _is_programs_class(kind: type) -> bool:
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
