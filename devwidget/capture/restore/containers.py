"""Read and restore Python's containers with their own C methods. No method of a subclass is run."""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import chain
from typing import Any

from devwidget.capture.restore.keepers import Keeper

ALL = slice(None)


def _same_items(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _same_entries(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    return _same_items(now, before) and all(map(operator.is_, now.values(), before.values()))


def _same_pairs(now: list[tuple[Any, Any]], before: list[tuple[Any, Any]]) -> bool:
    return len(now) == len(before) and all(a[0] is b[0] and a[1] is b[1] for a, b in zip(now, before, strict=True))


def _same_members(now: set[Any], before: set[Any]) -> bool:
    return len(now) == len(before) and set(map(id, now)) == set(map(id, before))


def _make_writer(clear: Callable[[Any], object], fill: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    def write(owner: Any, content: Any) -> None:
        clear(owner)
        fill(owner, content)

    return write


def _write_pairs(base: Any, owner: Any, pairs: list[tuple[Any, Any]]) -> None:
    base.clear(owner)
    for key, value in pairs:
        base.__setitem__(owner, key, value)


def _write_list(owner: Any, items: list[Any]) -> None:
    list.__setitem__(owner, ALL, items)


def _make_pairs_keeper(base: Any) -> Keeper:
    write = functools.partial(_write_pairs, base)
    return Keeper(lambda owner: list(base.items(owner)), write, _same_pairs, chain.from_iterable)


_ENTRIES = Keeper(
    dict.copy,
    _make_writer(dict.clear, dict.update),  # from an exact dict, so that neither hashes nor `__eq__` of the keys are asked
    _same_entries,
    lambda before: chain(before, before.values()),
)
_KINDS: tuple[tuple[type, Keeper], ...] = (
    (OrderedDict, _make_pairs_keeper(OrderedDict)),
    (dict, _make_pairs_keeper(dict)),
    (list, Keeper(lambda owner: list.__getitem__(owner, ALL), _write_list, _same_items, iter)),
    (tuple, Keeper(lambda owner: tuple.__getitem__(owner, ALL), parts=iter)),
    (deque, Keeper(lambda owner: list(deque.__iter__(owner)), _make_writer(deque.clear, deque.extend), _same_items, iter)),
    (set, Keeper(lambda owner: set().union(owner), _make_writer(set.clear, set.update), _same_members, iter)),
    (frozenset, Keeper(lambda owner: set().union(owner), parts=iter)),
)
"""Subclasses before their bases."""


def container_keeper(kind: type) -> Keeper | None:
    """Return how containers of a class are kept; None if it is not a container."""
    if kind is dict:  # a copy of a subclass would ask for its own `__iter__` and `keys`
        return _ENTRIES
    return next((keeper for base, keeper in _KINDS if issubclass(kind, base)), None)
