"""Sums, distinct values and groups of records."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def total(records: Iterable[Any], name: str) -> int:
    """The sum of an attribute that is a whole number."""
    return sum(map(attrgetter(name), records))


def values_once(records: Iterable[Any], name: str) -> tuple[Any, ...]:
    """The values of an attribute in their order, each once."""
    return tuple(dict.fromkeys(map(attrgetter(name), records)))


def items_once(records: Iterable[Any], name: str) -> tuple[Any, ...]:
    """The items of an attribute that is a tuple, of all records in their order, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(map(attrgetter(name), records))))


def group_by(records: Iterable[T], key_of: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    """Group records by a key, in the order of the first record of each."""
    groups: dict[Hashable, list[T]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    return groups
