"""What records have together: the sum of an attribute, and its values, each once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any


def total(records: Iterable[Any], name: str) -> int:
    """The sum of an attribute that is a whole number."""
    return sum(map(attrgetter(name), records))


def values_once(records: Iterable[Any], name: str) -> tuple[Any, ...]:
    """The values of an attribute in their order, each once."""
    return tuple(dict.fromkeys(map(attrgetter(name), records)))


def items_once(records: Iterable[Any], name: str) -> tuple[Any, ...]:
    """The items of an attribute that is a tuple, of all records in their order, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(map(attrgetter(name), records))))
