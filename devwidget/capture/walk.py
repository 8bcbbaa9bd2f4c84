"""Walk over objects: what an object holds, as Python stores it, and everything that some objects reach."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from devwidget.capture.object_fields import (
    cell_contents,
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
from devwidget.capture.tensors import is_module, is_tensor

_SEQUENCES: tuple[Any, ...] = (list, tuple, deque, set, frozenset)
_BARE = (*_SEQUENCES, dict, FunctionType, MethodType, CellType, functools.partial)
"""Classes whose instances have only their content, and no fields."""
_PARTS_OF: dict[int, tuple[str, ...]] = {
    id(FunctionType): ("__code__", "__defaults__", "__kwdefaults__", "__dict__"),
    id(MethodType): ("__self__", "__func__"),
    id(BuiltinMethodType): ("__self__",),
    id(functools.partial): ("func", "args", "keywords"),
    id(classmethod): ("__func__",),
    id(staticmethod): ("__func__",),
    id(property): ("fget", "fset", "fdel"),
}
"""Attributes of callables that lead to other objects, by id of the class: its hash may be the user's."""
_GROUPS = ("_parameters", "_buffers", "_modules")


class TooManyObjects(LookupError):
    """There are more objects than the limit."""


class Place(NamedTuple):
    """An object in a walk.

    Attributes:
        path: expression of the program, such as `self.cache['a'][0]`.
        before: place of the object that holds it; None for a root.
    """

    value: Any
    path: str
    before: Place | None

    def way(self) -> Iterator[Place]:
        """Yield this place and its parents, up to the root."""
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
    """Walk breadth first, each object once, at the nearest path. Skips numbers, texts and None; runs no user code.

    Args:
        roots: start objects, each with its path.
        enter: returns whether the content of an object is searched too.
        most: maximum number of objects.
        deepest: maximum number of objects between a root and another one.
        most_items: maximum number of items per container, the last ones.

    Raises:
        TooManyObjects: if there are more than `most`.
    """
    seen: dict[int, Any] = {}  # keeps the objects, because ids are reused
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
    """Yield what an object holds, each part with the suffix that reaches it.

    Skips the content of Python's files and of tensors, and numbers and texts in containers, which may be many.
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
    """Yield the content of a container, copied at once: other threads may change it meanwhile."""
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
            yield f".__closure__.{name}", cell_contents(cell)
    elif kind is CellType:
        yield "", cell_contents(value)
    for name in _PARTS_OF.get(id(kind), ()):
        yield f".{name}", getattr(value, name)


def _fields(value: object) -> Iterator[tuple[str, Any]]:
    """Yield attributes; for a module, its parts as the attributes that they look like."""
    is_parent = is_module(value)
    for name, part in fields_of(value):
        if is_parent and name in _GROUPS and is_a(part, dict):
            yield from ((f".{key}", each) for key, each in copy_items(part))
        else:
            yield f".{name}", part
