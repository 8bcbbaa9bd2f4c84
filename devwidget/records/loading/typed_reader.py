"""Convert JSON values to records, field by field by type. Anything else is refused with its path.

This is not a library: a text may be a message of the file, a part may be one of several kinds of records, sizes exceed 64 bits
(`msgspec` has none of these), and no text, list or truth value is converted (`cattrs` converts them).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from devwidget.records.schema.fields import AtLeast, saved_fields
from devwidget.records.schema.message import Message

Reader = Callable[[Any], Any]
Checks = Callable[[Any], Iterable[tuple[str, str]]]

LARGEST = 2**70
"""Maximum number in a record: a tensor has fewer than 2**63 elements of at most 16 bytes."""


_LISTS = frozenset((list, tuple))
"""List types of JSON, and of `pickle` files of other tools."""


class Unexpected(Exception):
    """A value that a field cannot hold. The path is built while the exception propagates, so valid values cost nothing."""

    def __init__(self, expected: str, value: object = dataclasses.MISSING, *, path: str = "") -> None:
        super().__init__()
        self.said = f"expected {expected}"
        if value is not dataclasses.MISSING:
            self.said += f", got {reprlib.repr(value)}"
        self.path = path

    def prepend_path(self, part: str) -> None:
        """Put a field name or `[index]` in front of the path."""
        self.path = part + ("." if self.path and not self.path.startswith("[") else "") + self.path

    def describe_problem(self) -> str:
        """Return the path and the expected value."""
        if self.path:
            return f"{self.path}: {self.said}"
        return self.said


@functools.cache
def make_reader(hint: Any) -> Reader:
    """Return the function that reads a type: a record, a tuple, an optional, a literal, a number, a text or a truth value."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _make_number_reader(args[0], next(each.least for each in args[1:] if isinstance(each, AtLeast)))
    if dataclasses.is_dataclass(hint):
        return _make_record_reader(typing.cast(type, hint))
    if origin in (types.UnionType, typing.Union):
        kinds = [each for each in args if each is not types.NoneType]
        if len(kinds) > 1:
            return _make_optional_reader(_make_choice_reader({kind.__name__: make_reader(kind) for kind in kinds}))
        return _make_optional_reader(make_reader(kinds[0]))
    if origin is typing.Literal:
        return _make_word_reader(args)
    if origin is tuple and args[-1] is Ellipsis:
        return _make_list_reader(make_reader(args[0]))
    if origin is tuple:
        return _make_tuple_reader(tuple(map(make_reader, args)))
    if hint in (int, float):
        return _make_number_reader(hint, -LARGEST)
    return {str: _read_text, bool: _read_truth}[hint]


_checks: dict[type, Checks] = {}


def register_check(kind: type) -> Callable[[Checks], Checks]:
    """Register conditions between the fields of a record: yields `(path, expected value)` for violations."""

    def keep(check: Checks) -> Checks:
        _checks[kind] = check
        return check

    return keep


known_messages: ContextVar[Mapping[str, Message]] = ContextVar("known_messages", default=types.MappingProxyType({}))
"""Messages of the file that is read."""


class SharedParts:
    """Values below `shared` in a file, which are parts of several others. Each is read once."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values
        self._read: dict[tuple[int, Reader], Any] = {}

    def read_part(self, value: Any, reader: Reader) -> Any:
        """Read a shared field, which may be the index of its value."""
        if type(value) is not dict or value.keys() != {"$"}:
            return reader(value)
        place = value["$"]
        if type(place) is not int or not 0 <= place < len(self._values):
            raise Unexpected("an index into `shared`", place)
        if (place, reader) not in self._read:
            self._read[place, reader] = reader(self._values[place])
        return self._read[place, reader]


shared_parts: ContextVar[SharedParts] = ContextVar("shared_parts")
"""Shared values of the file that is read."""


def _make_shared_reader(inner: Reader) -> Reader:
    return lambda value: shared_parts.get().read_part(value, inner)


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise Unexpected("a text", value)
    return known_messages.get().get(value, value)


def _read_truth(value: Any) -> bool:
    if type(value) is not bool:  # not isinstance: `true` is not a number
        raise Unexpected("true or false", value)
    return value


def _make_number_reader(kind: type, least: int) -> Reader:
    kinds, wanted = (int, kind), "a whole number"
    if kind is float:
        wanted = "a number"
    if least > -LARGEST:
        wanted = f"{wanted} of {least} or more"

    def read(value: Any) -> Any:
        if type(value) not in kinds or not least <= value <= LARGEST:  # no comparison holds for NaN
            raise Unexpected(wanted, value)
        return kind(value)

    return read


def _make_word_reader(words: tuple[Any, ...]) -> Reader:
    known, expected = frozenset(words), f"one of {', '.join(map(str, words))}"

    def read(value: Any) -> Any:
        if type(value) is str and value in known:
            return value
        raise Unexpected(expected, value)

    return read


def _make_optional_reader(inner: Reader) -> Reader:
    return lambda value: None if value is None else inner(value)


def _make_choice_reader(readers: Mapping[str, Reader]) -> Reader:
    """Read a field of several record kinds: the value names its kind."""

    def read(value: Any) -> Any:
        reader = readers.get(str(value.get("is"))) if type(value) is dict else None
        if reader is None:
            raise Unexpected(f"an object with one of {', '.join(readers)} as `is`", value)
        return reader(value)

    return read


def _make_list_reader(inner: Reader) -> Reader:
    return lambda value: _read_parts(value, itertools.repeat(inner))


def _make_tuple_reader(inner: tuple[Reader, ...]) -> Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) not in _LISTS or len(value) != len(inner):
            raise Unexpected(f"a list of {len(inner)}", value)
        return _read_parts(value, inner)

    return read


def _read_parts(value: Any, readers: Iterable[Reader]) -> tuple[Any, ...]:
    if type(value) not in _LISTS:
        raise Unexpected("a list", value)
    built: list[Any] = []
    try:
        for part, read in zip(value, readers, strict=False):
            built.append(read(part))  # how far it came is the index of the failure
    except Unexpected as wrong:
        wrong.prepend_path(f"[{len(built)}]")
        raise
    return tuple(built)


def _make_record_reader(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    readers: dict[str, Reader] = {}
    required = set[str]()
    for field in saved_fields(kind):
        readers[field.name] = make_reader(hints[field.name])
        if field.metadata.get("is_shared"):
            readers[field.name] = _make_shared_reader(readers[field.name])
        if field.default is dataclasses.MISSING:
            required.add(field.name)
    check = _checks.get(kind)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise Unexpected(f"the fields of a {kind.__name__}", value)
        fields, name = {}, ""
        try:
            for name, part in value.items():
                if name in readers:  # a newer version may have more fields
                    fields[name] = readers[name](part)
        except Unexpected as wrong:
            wrong.prepend_path(name)
            raise
        if not fields.keys() >= required:
            raise Unexpected(f"a {kind.__name__} with {', '.join(sorted(required - fields.keys()))}")
        record = kind(**fields)
        if check is not None:
            for path, wanted in check(record):
                raise Unexpected(wanted, path=path)
        return record

    return read
