"""Objects of Python and of libraries that stand for something outside of them, such as locks, files, queues and threads.

No copy of their fields would put that back. What can be read is compared, and named if it has changed; of what is C through
and through it is said that nobody has looked.
"""

from __future__ import annotations

import _thread
import contextvars
import datetime
import decimal
import enum
import gc
import io
import pathlib
import queue
import re
import struct
import sys
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.object_fields import class_name, copy_items, dict_of, fields_of, is_exactly
from devwidget.capture.restore.blocks import is_block
from devwidget.capture.restore.objects import (
    Fields,
    class_namespace,
    is_heap,
    is_of_python,
    is_own_package,
    is_tool,
    is_users,
    module_of,
    mro,
)  # fmt: skip
from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message

_dict_offset: Callable[[type], int] = vars(type)["__dictoffset__"].__get__
_size: Callable[[type], int] = vars(type)["__basicsize__"].__get__
_base: Callable[[type], type | None] = vars(type)["__base__"].__get__
_MOST_OF_C = 1000
_POINTER = struct.calcsize("P")
_LEAVES = (int, float, complex, bool, str, bytes, type(None))
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_FIXED: tuple[type, ...] = (
    *_LEAVES, type, types.ModuleType, types.CodeType, types.FrameType, types.TracebackType, BaseException, enum.Enum,
    types.EllipsisType, types.NotImplementedType, types.GenericAlias, types.UnionType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    type(datetime.datetime_CAPI), datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal,
    re.Pattern, re.Match, uuid.UUID, pathlib.PurePath, slice, range,
)  # fmt: skip
"""Of which nothing changes that a program can tell."""
_FIXED_MODULES = frozenset({"_ctypes", "inspect", "operator", "typing", "zoneinfo", "fractions", "ipaddress", "weakref"})
_LOCKS: tuple[type, ...] = (type(_thread.allocate_lock()), type(_thread.RLock()))
_FILES: tuple[type, ...] = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)


class ResourceReading(NamedTuple):
    """How the state of objects of one type is told.

    Attributes:
        read: it, as a value that can be compared.
        write: set it again, where that can be done.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object] | None = None


def _file_contents(file: Any) -> Any:
    return None if file.closed else (file.getvalue(), file.tell())


def _write_contents(file: Any, kept: Any) -> None:
    if kept is None or file.closed:
        raise NotRestored(Message("it was closed"))
    file.seek(0)
    file.truncate()
    file.write(kept[0])
    file.seek(kept[1])


def _file_position(file: Any) -> Any:
    """How far it is read or written; nothing of a pipe or a terminal."""
    if file.closed:
        return "closed"
    try:
        return file.tell()
    except OSError:
        return None


_UNSET = object()


def _set_variable(variable: contextvars.ContextVar[Any], value: Any) -> None:
    if value is _UNSET:
        raise NotRestored(Message("it had no value, and has one now"))
    variable.set(value)


def _list_readings() -> Iterator[tuple[type, ResourceReading]]:
    for memory in (io.StringIO, io.BytesIO):
        yield memory, ResourceReading(_file_contents, _write_contents)
    for lock in _LOCKS:
        yield lock, ResourceReading(lambda lock: repr(lock).split(" at ")[0])
    for file in _FILES:
        yield file, ResourceReading(_file_position)
    yield queue.SimpleQueue, ResourceReading(lambda queue: queue.qsize())
    yield contextvars.ContextVar, ResourceReading(lambda variable: variable.get(_UNSET), _set_variable)
    sqlite3 = sys.modules.get("sqlite3")
    if sqlite3 is not None:
        yield sqlite3.Connection, ResourceReading(lambda connection: (connection.total_changes, connection.in_transaction))
    hashing = sys.modules.get("_hashlib")
    if hashing is not None:
        yield hashing.HASH, ResourceReading(lambda value: value.digest())


def reading_of(kind: type) -> ResourceReading | None:
    """How instances of exactly this type are read; None where that is not known."""
    return next((reading for each, reading in _list_readings() if each is kind), None)


class Resource:
    """The state of one object that can be read."""

    def __init__(self, owner: Any, reading: ResourceReading) -> None:
        self.owner, self._reading, self._before = owner, reading, reading.read(owner)

    def list_parts(self) -> Iterable[Any]:
        """What a variable held."""
        return () if self._before is _UNSET else (self._before,)

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """It has no name of its own."""
        return (("", part) for part in self.list_parts())

    def has_changed(self) -> bool:
        """Whether it is read as something else."""
        now, before = self._reading.read(self.owner), self._before
        return now is not before and not (is_exactly(before, (str, bytes, int, tuple)) and now == before)

    def put_back(self) -> None:
        """Set it again.

        Raises:
            NotRestored: if it has changed and cannot be set.
        """
        if not self.has_changed():
            return
        if self._reading.write is None:
            raise NotRestored(_find_changed(self.owner))
        self._reading.write(self.owner, self._before)


class Watched:
    """The fields of an object of a library: told when they are others, and not put back."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._before = _list_fields(owner)

    def list_parts(self) -> Iterable[Any]:
        """Objects of the program; what belongs to the library is its own affair."""
        for value in self._before.values():
            yield from filter(_is_own, value[1:] if type(value) is tuple else (value,))

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """None has a name that a reader would know."""
        return (("", part) for part in self.list_parts())

    def has_changed(self) -> bool:
        """Whether a field is another one."""
        now, before = _list_fields(self.owner), self._before
        return now.keys() != before.keys() or not all(_same_values(now[name], value) for name, value in before.items())

    def put_back(self) -> None:
        """Nothing to do.

        Raises:
            NotRestored: if a field is another one.
        """
        if self.has_changed():
            raise NotRestored(_find_changed(self.owner))


class Opaque:
    """An object that is written in C: what Python's collector sees in it is compared, where it sees anything."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._held = _held_by(owner)

    def list_parts(self) -> Iterable[Any]:
        """The memory that it holds, directly or in other objects of C."""
        waiting, met = deque(self._held), set[int]()
        while waiting and len(met) < _MOST_OF_C:
            each = waiting.popleft()
            if id(each) in met:
                continue
            met.add(id(each))
            if is_block(type(each)) or isinstance(each, torch.Tensor):
                yield each
            elif is_exactly(each, (tuple, list)) or (_is_written_in_c(type(each)) and not _is_fixed(type(each))):
                waiting += _held_by(each)

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """None has a name."""
        return (("", part) for part in self.list_parts())

    def has_changed(self) -> bool:
        """Whether something that it held is gone; what it holds besides may be a cache that was filled."""
        now = set(map(id, _held_by(self.owner)))
        return not self._held or not all(id(each) in now for each in self._held)

    def put_back(self) -> None:
        """Nothing to do.

        Raises:
            NotRestored: if something that it held is gone, or nobody can see what it holds.
        """
        if not self._held:
            raise NotRestored(Message("not looked at, a {kind}", kind=class_name(type(self.owner))))
        if self.has_changed():
            raise NotRestored(_find_changed(self.owner))


def look_of(kind: type) -> Callable[[Any], Any] | None:
    """How an object is looked at whose class is not the program's; None where nothing about it changes."""
    reading = reading_of(kind)
    if reading is not None:
        return lambda owner: Resource(owner, reading)
    if _is_fixed(kind):
        return None
    if _is_written_in_c(kind):
        return Opaque
    return Watched if is_of_python(kind) else _library_state


def _library_state(owner: Any) -> Any:
    """Its fields are put back, unless one of them stands for something outside."""
    return Watched(owner) if any(_is_resource(type(value)) for _, value in fields_of(owner)) else Fields(owner)


def _is_resource(kind: type) -> bool:
    reading = reading_of(kind)
    if reading is not None or _is_fixed(kind) or is_users(kind, set()):
        return reading is not None and reading.write is None
    return is_of_python(kind) and not _is_written_in_c(kind)


def _is_fixed(kind: type) -> bool:
    """Whether nothing changes about instances of a class that a program could tell, or others answer for them."""
    top = module_of(kind).partition(".")[0]
    if kind is object or top in _FIXED_MODULES or top == "torch" or is_tool(top):
        return True
    if issubclass(kind, _FIXED) or _class_defines(kind, "__next__"):
        return True
    return _is_written_in_c(kind) and (top == "numpy" or _class_defines(kind, "__call__") or _class_defines(kind, "__get__"))


def _class_defines(kind: type, name: str) -> bool:
    return any(name in class_namespace(base) for base in mro(kind))


def _is_written_in_c(kind: type) -> bool:
    """Whether a class or a base of it is, other than the containers and numbers of Python itself."""
    if any(not is_heap(base) and module_of(base) != "builtins" for base in mro(kind)):
        return True
    return not (_dict_offset(kind) or _class_defines(kind, "__slots__")) or any(map(_has_memory_of_c, mro(kind)))


def _has_memory_of_c(kind: type) -> bool:
    """Whether instances take more bytes than their slots, a dict and a list of weak references."""
    base, slots = _base(kind), sum(type(each) is types.MemberDescriptorType for each in class_namespace(kind).values())
    return is_heap(kind) and base is not None and _size(kind) - _size(base) > (slots + 2) * _POINTER


def _held_by(owner: Any) -> list[Any]:
    namespace = dict_of(owner)
    return [each for each in gc.get_referents(owner) if not isinstance(each, type) and each is not namespace]


def _list_fields(owner: Any) -> dict[str, Any]:
    """Name and value, of a container what is in it; caches are nobody's business."""
    return {name: _open_value(value) for name, value in fields_of(owner) if not name.endswith("_cache")}


def _open_value(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return (kind, *(part for pair in copy_items(value) for part in pair))
    return (kind, *value) if kind in _CONTAINERS else value


def _same_values(now: Any, before: Any) -> bool:
    if type(now) is tuple and type(before) is tuple:
        return len(now) == len(before) and all(map(_same_values, now, before))
    return now is before or (type(now) is type(before) and is_exactly(now, _LEAVES) and bool(now == before))


def _is_own(value: Any) -> bool:
    kind = type(value)
    return is_heap(kind) and (is_own_package(module_of(kind)) or issubclass(kind, torch.Tensor | nn.Module))


def _find_changed(owner: Any) -> Message:
    return Message("a {kind} that has changed", kind=class_name(type(owner)))
