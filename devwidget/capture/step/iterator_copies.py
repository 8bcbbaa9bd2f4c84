"""Iterators: copies that move in the place of one that a batch is taken from."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from devwidget.capture.object_fields import find_class_attribute, module_name

_OVER_SEQUENCES: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))), type(iter("")), type(iter(b"")))
_OVER_SEQUENCE_IDS = frozenset(map(id, _OVER_SEQUENCES))
"""A type is not asked whether it equals another: its metaclass may answer."""
_OF_CALLS = type(iter(int, 1))
"""`iter(function, end)`: a copy would call the same function, and so move what that reads from."""
_TEE: type = type(itertools.tee("")[0])
_PYTHONS = ("builtins", "itertools", "_collections", "array")
"""Modules whose iterators say what they are made of, in `__reduce__`."""


def is_iterator(kind: type) -> bool:
    """Whether instances of a class give items one by one, and so are not afterwards what they were."""
    return find_class_attribute(kind, "__next__") is not None and not issubclass(kind, type)


def copy_iterator(iterator: Any) -> Any:
    """An iterator that gives the same items from here on, while this one stays where it is; None where there is no such."""
    return _copy_iterator(iterator, {}, inside_chain=False)


def _copy_iterator(iterator: Any, copies: dict[int, Any], *, inside_chain: bool) -> Any:
    """A copy made of copies of the iterators inside, each of which is copied once: `zip(rows, rows)` shares one."""
    kind = type(iterator)
    if id(iterator) not in copies:
        if kind is _TEE:
            copies[id(iterator)] = iterator.__copy__()
        else:
            try:
                copies[id(iterator)] = _made_again(iterator, copies, inside_chain or kind is itertools.chain)
            except (LookupError, TypeError, Warning):  # newer Pythons warn, and in the end refuse
                return None
    return copies[id(iterator)]


def _made_again(iterator: Any, copies: dict[int, Any], inside_chain: bool) -> Any:
    kind = type(iterator)
    if kind is _OF_CALLS or module_name(kind) not in _PYTHONS:
        raise LookupError(kind)
    copy = functools.partial(_copy_part, copies=copies, inside_chain=inside_chain)
    make, args, *state = iterator.__reduce__()
    made = make(*map(copy, args) if id(kind) not in _OVER_SEQUENCE_IDS or inside_chain else args)
    for each in state:
        if each is not None:  # `accumulate` says so before its first item
            made.__setstate__(copy(each))
    return made


def _copy_part(value: Any, copies: dict[int, Any], inside_chain: bool) -> Any:
    """What a copied iterator is made of. A chain runs through what is in its lists, and `cycle` appends to its own."""
    kind = type(value)
    if kind is tuple or kind is list:
        deeper = kind is tuple or inside_chain
        parts = map(functools.partial(_copy_part, copies=copies, inside_chain=inside_chain), value) if deeper else value
        return kind(parts)
    if not is_iterator(kind):
        return value
    copy = _copy_iterator(value, copies, inside_chain=inside_chain)
    if copy is None:
        raise LookupError(kind)
    return copy
