"""Read and restore Python's containers and NumPy's arrays with their own C methods. No method of a subclass is run."""

from __future__ import annotations

import array
import operator
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from devwidget.capture.restore.keepers import Keeper

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
