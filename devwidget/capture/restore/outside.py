"""Objects that are none of the program's: of libraries, and those that stand for a lock, a file, a queue or a thread.

No copy of their fields would put those back. What is cheap to look at is compared and named; no more is promised.
"""

from __future__ import annotations

import _queue
import contextvars
import gc
import io
import itertools
import queue
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from devwidget.capture.object_fields import fields_of, find_class_attribute, is_scalar, module_name
from devwidget.capture.restore.blocks import is_block
from devwidget.capture.restore.keepers import Keeper
from devwidget.capture.restore.objects import FIELDS, is_heap, is_own_package, is_tool, module_of, mro
from devwidget.capture.restore.program_code import is_callee

_UNSET = object()
_CLOSED = (types.ModuleType, types.CodeType, types.FrameType, types.TracebackType, BaseException, type)
_OUTSIDE = frozenset({
    "_io", "_queue", "_socket", "_sqlite3", "_ssl", "_thread", "asyncio", "concurrent", "ctypes", "_ctypes", "http", "io",
    "logging", "mmap", "multiprocessing", "queue", "select", "selectors", "socket", "sqlite3", "ssl", "subprocess",
    "tempfile", "threading", "urllib", "zipfile",
})  # fmt: skip
"""Modules of Python whose objects stand for something outside of them."""


def _file_position(file: Any) -> Any:
    """How far it is read or written; nothing of a pipe or a terminal."""
    if file.closed:
        return "closed"
    try:
        return file.tell()
    except (OSError, ValueError):
        return None


_LOOKS: tuple[tuple[tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((type(threading.Lock()), type(threading.RLock())), lambda lock: repr(lock).split(" at ")[0]),
    ((io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper), _file_position),
    ((io.StringIO, io.BytesIO), _file_position),
    ((queue.Queue, queue.LifoQueue, queue.PriorityQueue), lambda each: len(each.queue)),
    ((_queue.SimpleQueue,), lambda each: each.qsize()),
    ((itertools.count,), repr),
)
"""What tells that an object of exactly these types has changed."""


def _same_looks(now: Any, before: Any) -> bool:
    return bool(now == before)


_VARIABLE = Keeper(
    lambda variable: variable.get(_UNSET), same=lambda now, before: now is before, parts=lambda before: (before,)
)


def _read_own_fields(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in fields_of(owner) if not name.endswith("_cache")}


def _same_own_fields(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now.keys() == before.keys() and all(_is_same(now[name], value) for name, value in before.items())


def _is_same(now: Any, before: Any) -> bool:
    return now is before or (type(now) is type(before) and is_scalar(now) and bool(now == before))


def _parts_of_program(before: dict[str, Any]) -> Iterable[Any]:
    """What belongs to the library is its own affair."""
    return [value for value in before.values() if _is_programs(type(value))]


def _is_programs(kind: type) -> bool:
    return is_heap(kind) and (is_own_package(module_of(kind)) or issubclass(kind, torch.Tensor | torch.nn.Module))


_WATCHED = Keeper(_read_own_fields, same=_same_own_fields, parts=_parts_of_program)
"""An object that stands for something outside, or has a field that does: another field is told."""


def _memory_held(owner: Any) -> list[Any]:
    return [each for each in gc.get_referents(owner) if _holds_memory(each)]


def _holds_memory(value: Any) -> bool:
    kind = type(value)
    if is_block(kind) or issubclass(kind, torch.Tensor) or kind is tuple:
        return True
    return not is_heap(kind) and module_of(kind) != "builtins"


_OF_C = Keeper(_memory_held, parts=iter)
"""An object that is written in C: it leads to arrays and tensors, which are put back, and is not looked at itself."""


def _read_iterator(iterator: Any) -> tuple[Any, ...]:
    """What is left of one over a container of Python, as that is told, and the functions that it calls."""
    kind = type(iterator)
    tells = module_name(kind) == "builtins" and find_class_attribute(kind, "__length_hint__") is not None
    functions = [part for part in gc.get_referents(iterator) if is_callee(type(part))]
    return iterator.__length_hint__() if tells else None, *functions


_ITERATOR = Keeper(
    _read_iterator,
    same=lambda now, before: now[0] == before[0],
    parts=lambda before: before[1:],
)
"""Not set back; what it runs over is not searched."""


def stranger_keepers(value: Any) -> tuple[Keeper, ...]:
    """How an object is kept whose class is not the program's."""
    kind = type(value)
    look = next((look for kinds, look in _LOOKS if any(each is kind for each in kinds)), None)
    if look is not None:
        return (Keeper(look, same=_same_looks),)
    if kind is contextvars.ContextVar:
        return (_VARIABLE,)
    if find_class_attribute(kind, "__next__") is not None:
        return (_ITERATOR,)
    top = module_of(kind).partition(".")[0]
    if issubclass(kind, _CLOSED) or top == "torch" or is_tool(top):
        return ()
    if _is_outside(kind):
        return (_WATCHED,)
    if not is_heap(kind):
        return (_OF_C,)
    if any(_is_outside(type(each)) for _, each in fields_of(value)):
        return _WATCHED, _OF_C
    return FIELDS, _OF_C


def _is_outside(kind: type) -> bool:
    return any(module_of(base).partition(".")[0] in _OUTSIDE for base in mro(kind))
