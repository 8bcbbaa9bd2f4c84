"""The walk over objects: what an object holds, as Python stores it, and everything that some objects lead to."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from devwidget.capture.modules import is_module
from devwidget.capture.object_fields import (
    copy_items,
    fields_of,
    find_class_attribute,
    is_a,
    is_exactly,
    is_scalar,
    items_of,
    key_text,
    names_of,
)
from devwidget.capture.tensors import is_tensor

_SEQUENCES: tuple[Any, ...] = (list, tuple, deque, set, frozenset)
_BARE = (*_SEQUENCES, dict, FunctionType, MethodType, CellType, functools.partial)
"""Classes whose own objects have no fields beside what they hold."""
_PARTS_OF: dict[int, tuple[str, ...]] = {
    id(FunctionType): ("__code__", "__defaults__", "__kwdefaults__", "__dict__"),
    id(MethodType): ("__self__", "__func__"),
    id(BuiltinMethodType): ("__self__",),
    id(functools.partial): ("func", "args", "keywords"),
    id(classmethod): ("__func__",),
    id(staticmethod): ("__func__",),
    id(property): ("fget", "fset", "fdel"),
}
"""Attributes of callables that lead to other objects, by the id of the class: its hash may be the user's."""
_GROUPS = ("_parameters", "_buffers", "_modules")


class TooManyObjects(LookupError):
    """There is more than can be looked at."""


class Place(NamedTuple):
    """An object that a walk has come to.

    Attributes:
        path: as the program writes it, such as `self.cache['a'][0]`.
        before: the object that holds it; None for a root.
    """

    value: Any
    path: str
    before: Place | None

    def way(self) -> Iterator[Place]:
        """This place, and those that led to it, back to the root."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.before


def walk(
    roots: Iterable[tuple[str, Any]],
    *,
    enter: Callable[[Any], bool],
    most: int,
    deepest: int,
    most_items: int = sys.maxsize,
) -> Iterator[Place]:
    """Breadth first, each object once, at the nearest path; numbers, texts and None are left out. No code of the user runs.

    Args:
        roots: where it begins, each with its path.
        enter: whether what an object holds is looked at too.
        most: objects that are looked at.
        deepest: objects between a root and another one.
        most_items: of one container, the last ones.

    Raises:
        TooManyObjects: if there are more than `most`.
    """
    seen: dict[int, Any] = {}  # objects too: an id is somebody else's when its object is gone
    level = [Place(value, path, None) for path, value in roots]
    for _ in range(deepest + 1):
        below: list[Place] = []
        for place in level:
            if id(place.value) in seen or is_scalar(place.value):
                continue
            if len(seen) >= most:
                raise TooManyObjects
            seen[id(place.value)] = place.value
            yield place
            if enter(place.value):
                below += [Place(part, place.path + name, place) for name, part in children(place.value, most_items)]
        level = below


def children(value: object, most_items: int = sys.maxsize) -> Iterator[tuple[str, Any]]:
    """What an object holds, each part with what is written behind the object's name to reach it.

    Nothing of files of Python and of tensors. Of containers not the numbers and texts, which may be many.
    """
    kind = type(value)
    if is_a(value, ModuleType) or is_tensor(value):
        return
    if is_a(value, type):
        yield from ((f".{name}", part) for name, part in list(names_of(value).items()))
        return
    yield from _items(value, most_items)
    yield from _parts_of_callable(value)
    if not is_exactly(value, _BARE):
        yield from _fields(value)
        yield ".__class__", kind


def _items(value: Any, most: int) -> Iterator[tuple[str, Any]]:
    """What is in a container, copied at once: other threads may change it meanwhile."""
    items = items_of(value)
    if items is not None:
        for key, part in items[-most:]:
            if not is_scalar(part):
                yield f"[{key_text(key)}]", part
        return
    base = next((kind for kind in _SEQUENCES if is_a(value, kind)), None)
    if base is None:
        return
    parts = list(base.__iter__(value))
    names = find_class_attribute(type(value), "_fields")
    if base is tuple and type(names) is tuple and names:
        for name, part in zip(names, parts, strict=False):
            yield f".{name}", part
        return
    first = max(0, len(parts) - most)
    for at, part in enumerate(parts[first:], first):
        if not is_scalar(part):
            yield f"[{at}]", part


def _parts_of_callable(value: Any) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if kind is FunctionType:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            for _, part in _read_cell(cell):
                yield f".__closure__.{name}", part
    elif kind is CellType:
        yield from _read_cell(value)
    for name in _PARTS_OF.get(id(kind), ()):
        yield f".{name}", getattr(value, name)


def _read_cell(cell: CellType) -> Iterator[tuple[str, Any]]:
    try:
        yield "", cell.cell_contents
    except ValueError:  # not assigned yet
        return


def _fields(value: object) -> Iterator[tuple[str, Any]]:
    """Attributes; the parts of a module as its attributes, which they look like."""
    is_parent = is_module(value)
    for name, part in fields_of(value):
        if is_parent and name in _GROUPS and is_a(part, dict):
            yield from ((f".{key}", each) for key, each in copy_items(part))
        else:
            yield f".{name}", part
