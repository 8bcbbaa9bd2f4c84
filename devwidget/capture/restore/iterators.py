"""Iterators: where one stands, copies that move in its place, and those of a model, which are set back or named."""

from __future__ import annotations

import functools
import gc
import itertools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from devwidget.capture.object_fields import fields_of, find_class_attribute, is_scalar, module_name
from devwidget.capture.restore.program_code import is_callee
from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message

_OVER_SEQUENCES: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))), type(iter("")), type(iter(b"")))
_ENTRIES: dict[None, None] = {}
_WITH_LENGTH: tuple[type, ...] = (
    type(iter(_ENTRIES)), type(iter(_ENTRIES.values())), type(iter(_ENTRIES.items())), type(iter(frozenset())),
    type(reversed([])),
)  # fmt: skip
_SEQUENCE_IDS, _LENGTH_IDS = frozenset(map(id, _OVER_SEQUENCES)), frozenset(map(id, _WITH_LENGTH))
"""A type is not asked whether it equals another: its metaclass may answer."""
_OF_CALLS = type(iter(int, 1))
"""`iter(function, end)`: a copy would call the same function, and so move what that reads from."""
_TEE: type = type(itertools.tee("")[0])
_PYTHONS = ("builtins", "itertools", "_collections", "array")
"""Modules whose iterators say what they are made of, in `__reduce__`."""
_DEEPEST = 8


class IteratorState:
    """How far one iterator was."""

    def __init__(self, owner: Any) -> None:
        self.owner, self._position = owner, _read_position(owner)

    def list_parts(self) -> Iterable[Any]:
        """The functions that it calls; what it runs over is not searched."""
        return [part for part in gc.get_referents(self.owner) if is_callee(type(part))]

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """A function has no name from here."""
        return (("", part) for part in self.list_parts())

    def has_changed(self) -> bool:
        """Whether it has moved on."""
        return bool(_read_position(self.owner) != self._position)

    def put_back(self) -> None:
        """Set it back.

        Raises:
            NotRestored: if it has moved on and cannot be set back.
        """
        now = _read_position(self.owner)
        if now == self._position:
            return
        if type(now) is int and type(self._position) is int:
            self.owner.__setstate__(self._position)
        else:
            raise NotRestored(Message("an iterator that has moved on"))


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
    made = make(*map(copy, args) if id(kind) not in _SEQUENCE_IDS or inside_chain else args)
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


class _Same:
    """Equal to what stands for the same object, which it holds: its id stays its own."""

    __slots__ = ("_value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and other._value is self._value


def _read_position(iterator: Any, depth: int = _DEEPEST) -> object:
    """An index where it can be set again, else what tells one position from another."""
    kind = type(iterator)
    if id(kind) in _SEQUENCE_IDS:
        state: tuple[Any, ...] = iterator.__reduce__()
        return state[2] if len(state) == 3 else str(iterator.__length_hint__())
    if id(kind) in _LENGTH_IDS:
        return str(iterator.__length_hint__())
    if kind is types.GeneratorType:
        frame = iterator.gi_frame
        # Its next instruction and what it refers to change when it moves; asking for an item would move it.
        return None if frame is None else [frame.f_lasti, *_mark_parts(gc.get_referents(iterator), depth)]
    return list(_mark_parts(_made_of(iterator), depth))


def _made_of(iterator: Any) -> Iterable[Any]:
    """What changes when an iterator moves, as far as it can be seen; of one written in Python its plain fields."""
    kind = type(iterator)
    if module_name(kind) in _PYTHONS:
        try:
            return iterator.__reduce__()  # type: ignore[no-any-return]
        except (TypeError, Warning):
            return gc.get_referents(iterator)
    return [value for _, value in fields_of(iterator) if is_scalar(value) or is_iterator(type(value))]


def _mark_parts(parts: Iterable[Any], depth: int) -> Iterator[object]:
    for part in parts:
        if is_scalar(part):
            yield part
        elif type(part) is tuple:
            yield list(_mark_parts(part, depth))
        else:
            yield _read_position(part, depth - 1) if depth and is_iterator(type(part)) else _Same(part)
