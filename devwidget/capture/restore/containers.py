"""What Python's containers hold, read and put back by their own C methods: no method of a subclass is run."""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

from devwidget.capture.object_fields import is_exactly
from devwidget.capture.restore.keepers import Keeper, Label

ALL = slice(None)


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


def _by_key(pairs: Iterable[tuple[Any, Any]]) -> Iterator[Label]:
    for key, value in pairs:
        name = f"[{key!r}]" if is_exactly(key, (str, int, bool)) else f"[a {type(key).__name__}]"
        yield name, value
        yield "", key


def _by_place(items: Iterable[Any]) -> Iterator[Label]:
    return ((f"[{place}]", item) for place, item in enumerate(items))


_ENTRIES = Keeper(dict.copy, _write_dict, _same_entries, _of_entries, lambda held: _by_key(held.items()))
_OWN_ENTRIES = Keeper(lambda owner: list(dict.items(owner)), _write_pairs, _same_pairs, _of_pairs, _by_key)
_PAIRS = Keeper(lambda owner: list(OrderedDict.items(owner)), _write_ordered, _same_pairs, _of_pairs, _by_key)
_ITEMS = Keeper(lambda owner: list.__getitem__(owner, ALL), _write_list, _same_items, iter, _by_place)
_TUPLE = Keeper(lambda owner: tuple.__getitem__(owner, ALL), None, _same_items, iter, _by_place)
_QUEUE = Keeper(lambda owner: list(deque.__iter__(owner)), _write_deque, _same_items, iter, _by_place)
_MEMBERS = Keeper(lambda owner: set().union(owner), _write_set, _same_members, iter)
_FROZEN = Keeper(lambda owner: set().union(owner), None, _same_members, iter)

_KINDS: tuple[tuple[type, Keeper], ...] = (
    (OrderedDict, _PAIRS),
    (dict, _OWN_ENTRIES),
    (list, _ITEMS),
    (tuple, _TUPLE),
    (deque, _QUEUE),
    (set, _MEMBERS),
    (frozenset, _FROZEN),
)
"""Subclasses before their bases."""


def container_keeper(kind: type) -> Keeper | None:
    """How containers of a class are kept; None if it is none."""
    if kind is dict:  # a copy of a subclass would ask for its own `__iter__` and `keys`
        return _ENTRIES
    return next((keeper for base, keeper in _KINDS if issubclass(kind, base)), None)
