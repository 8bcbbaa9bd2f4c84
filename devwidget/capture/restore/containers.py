"""What Python's containers hold, read and put back by their own C methods: no method of a subclass is run."""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from devwidget.capture.object_fields import is_exactly

ALL = slice(None)


class Container(NamedTuple):
    """One kind of container.

    Attributes:
        read: a copy of what it holds, as an exact type of Python.
        write: make it hold that again.
        parts: what the copy holds, for the search to go on.
        labelled: the same with how each part is called.
        same: whether two copies hold the same objects.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    parts: Callable[[Any], Iterable[Any]]
    labelled: Callable[[Any], Iterator[tuple[str, Any]]]
    same: Callable[[Any, Any], bool]


class Contents:
    """What one container held."""

    __slots__ = ("_held", "kind", "owner")

    def __init__(self, owner: Any, kind: Container) -> None:
        self.owner, self.kind, self._held = owner, kind, kind.read(owner)

    def list_parts(self) -> Iterable[Any]:
        """What is in it."""
        return self.kind.parts(self._held)

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """How each part is called from here."""
        return self.kind.labelled(self._held)

    def has_changed(self) -> bool:
        """Whether it holds other things, or in another order."""
        return not self.kind.same(self.kind.read(self.owner), self._held)

    def put_back(self) -> None:
        """A container that holds the same is not touched."""
        if self.has_changed():
            self.kind.write(self.owner, self._held)


def _same_items(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _same_entries(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    return _same_items(now, before) and all(map(operator.is_, now.values(), before.values()))


def _same_members(now: set[Any], before: set[Any]) -> bool:
    return len(now) == len(before) and set(map(id, now)) == set(map(id, before))


def _same_pairs(now: list[tuple[Any, Any]], before: list[tuple[Any, Any]]) -> bool:
    return len(now) == len(before) and all(a[0] is b[0] and a[1] is b[1] for a, b in zip(now, before, strict=True))


def _write_dict(owner: Any, entries: dict[Any, Any]) -> None:
    dict.clear(owner)
    dict.update(owner, entries)  # of an exact dict, so that neither hashes nor `__eq__` of the keys are asked


def _write_ordered(owner: Any, pairs: list[tuple[Any, Any]]) -> None:
    OrderedDict.clear(owner)
    for key, value in pairs:
        OrderedDict.__setitem__(owner, key, value)


def _write_pairs(owner: Any, pairs: list[tuple[Any, Any]]) -> None:
    dict.clear(owner)
    for key, value in pairs:
        dict.__setitem__(owner, key, value)


def _write_set(owner: Any, members: set[Any]) -> None:
    set.clear(owner)
    set.update(owner, members)


def _write_deque(owner: Any, items: list[Any]) -> None:
    deque.clear(owner)
    deque.extend(owner, items)


def _write_list(owner: Any, items: list[Any]) -> None:
    list.__setitem__(owner, ALL, items)


def _of_entries(entries: dict[Any, Any]) -> Iterable[Any]:
    return [*entries, *entries.values()]


def _of_pairs(pairs: list[tuple[Any, Any]]) -> Iterable[Any]:
    return [part for pair in pairs for part in pair]


def _by_key(pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    for key, value in pairs:
        name = f"[{key!r}]" if is_exactly(key, (str, int, bool)) else f"[a {type(key).__name__}]"
        yield name, value
        yield "", key


def _by_place(items: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"[{place}]", item) for place, item in enumerate(items))


def _unplaced_parts(items: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return (("", item) for item in items)


_ENTRIES = Container(dict.copy, _write_dict, _of_entries, lambda held: _by_key(held.items()), _same_entries)
_OWN_ENTRIES = Container(lambda owner: list(dict.items(owner)), _write_pairs, _of_pairs, _by_key, _same_pairs)
_PAIRS = Container(lambda owner: list(OrderedDict.items(owner)), _write_ordered, _of_pairs, _by_key, _same_pairs)
_ITEMS = Container(lambda owner: list.__getitem__(owner, ALL), _write_list, iter, _by_place, _same_items)
_TUPLE = Container(lambda owner: tuple.__getitem__(owner, ALL), lambda owner, held: None, iter, _by_place, _same_items)
_QUEUE = Container(lambda owner: list(deque.__iter__(owner)), _write_deque, iter, _by_place, _same_items)
_MEMBERS = Container(lambda owner: set().union(owner), _write_set, iter, _unplaced_parts, _same_members)
_FROZEN = Container(lambda owner: set().union(owner), lambda owner, held: None, iter, _unplaced_parts, _same_members)

_KINDS: tuple[tuple[type, Container], ...] = (
    (OrderedDict, _PAIRS),
    (dict, _OWN_ENTRIES),
    (list, _ITEMS),
    (tuple, _TUPLE),
    (deque, _QUEUE),
    (set, _MEMBERS),
    (frozenset, _FROZEN),
)
"""Subclasses before their bases."""


def container_kind(kind: type) -> Container | None:
    """How containers of a class are kept; None if it is none."""
    if kind is dict:  # a copy of a subclass would ask for its own `__iter__` and `keys`
        return _ENTRIES
    return next((container for base, container in _KINDS if issubclass(kind, base)), None)
