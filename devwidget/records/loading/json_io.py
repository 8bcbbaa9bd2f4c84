"""Read records from JSON: plain objects with one schema version, from a file that may contain anything."""

from __future__ import annotations

import contextvars
import json
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from devwidget import extras
from devwidget._version import __version__
from devwidget.records import comparison, explanation, snapshot, trace  # noqa: F401  # known by name then
from devwidget.records.errors import UnreadableError
from devwidget.records.loading import consistency as consistency
from devwidget.records.loading.typed_reader import (
    SharedParts,
    Unexpected,
    known_messages,
    make_reader,
    shared_parts,
)
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import SCHEMA_VERSION, saved_kinds
from devwidget.records.schema.record import dumps as dumps


def read_regular(path: str | os.PathLike[str], most: int, *, first: int | None = None) -> bytes:
    """Return the content of a file, up to its length when it was opened, without blocking.

    Args:
        path: path of the file; links are followed.
        most: maximum size in bytes.
        first: maximum number of bytes to read.

    Raises:
        UnreadableError: if it is not a regular file, or is larger.
        OSError: if it cannot be opened.
    """
    file = pathlib.Path(path)
    name, found = file.name or str(path), file.stat()
    if not stat.S_ISREG(found.st_mode):  # to open a pipe would block, and to open a device may do something
        raise UnreadableError(Message("{name} is not a regular file", name=name))
    if found.st_size > most:
        size = f"{found.st_size:,}"
        raise UnreadableError(Message("{name} has {size} bytes, more than any saved record", name=name, size=size))
    with file.open("rb") as opened:
        return opened.read(found.st_size if first is None else first)


T = TypeVar("T")
LARGEST_TEXT = 2**30
"""Maximum number of characters; a snapshot of 100,000 modules takes 2**26."""
_LONG = 2**24


def load(path: str | pathlib.Path, most: int = LARGEST_TEXT) -> Any:
    """Read the record in a file of limited size. Raises as `loads` does, and errors of opening the file."""
    try:
        return loads(read_regular(path, most).decode())
    except UnicodeDecodeError as error:
        raise _make_unreadable(Message("not UTF-8 text: {error}", error=error)) from None


def loads(text: str) -> Any:
    """Return the record that `dumps` wrote. Unknown fields are ignored.

    Raises:
        ValueError: if the text is not JSON of devwidget, or has an unknown schema; the message names the place in the file.
    """
    if len(text) > LARGEST_TEXT:
        raise _make_unreadable(Message("{count} characters, more than any saved record", count=f"{len(text):,}"))
    try:
        first, _, more = text.partition("\n")
        join = _find_join(first[:_HEAD])
        if more and join is not None:
            return _join_lines(text, join)
        return _read_envelope(_parse_json(text))
    except RecursionError:
        raise _make_unreadable(Message("lists or objects are nested too deeply")) from None
    except Unexpected as wrong:
        raise _make_unreadable(wrong.describe_problem()) from None


_KIND, _HEAD = re.compile(r'"record": "(\w+)"'), 200
"""The beginning of a file, and its number of characters."""
_joins: dict[str, Callable[[Iterable[Any]], Any]] = {}


def register_join(kind: str, join: Callable[[Iterable[Any]], Any]) -> None:
    """Register how to combine the records of a growing file with one record per line."""
    _joins[kind] = join


def _find_join(head: str) -> Callable[[Iterable[Any]], Any] | None:
    named = _KIND.search(head)
    if named is None:
        return None
    _load_kind(named[1])
    return _joins.get(named[1])


def _join_lines(text: str, join: Callable[[Iterable[Any]], Any]) -> Any:
    """Return the record of a growing file, whose last line may be incomplete."""
    whole, _, _ = text.rpartition("\n")
    return join(_read_envelope(_parse_json(line)) for line in whole.split("\n") if line)


def list_kinds() -> list[str]:
    """Return the names of record kinds that can be read."""
    return sorted({*saved_kinds, *extras.offered("records")})


def _load_kind(kind: str) -> type | None:
    """Return the record class of a name. One of an extra is imported, with its checks."""
    extras.find_home("records", kind)
    return saved_kinds.get(kind)


def reread(record: T) -> T:
    """Return the record as read back from its file. Data of other tools can make a record that no view can show.

    Raises:
        Unexpected: with the place in the record.
    """
    return cast(T, _read_envelope(_parse_json(dumps(record))))


def refuse_brackets(text: str | bytes) -> None:
    """Refuse a long text that is mostly brackets: an empty list takes 56 bytes of memory for two of text.

    Raises:
        Unexpected: if there is more than one bracket for each eight characters.
    """
    opening: tuple[Any, Any] = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    brackets = sum(map(text.count, opening))
    if len(text) > _LONG and brackets * 8 > len(text):
        raise Unexpected("more than brackets")


def _parse_json(text: str) -> Any:
    refuse_brackets(text)
    try:
        return json.loads(text)
    except ValueError as error:  # also of a number with too many digits
        raise Unexpected(f"JSON; {error}") from None


def _read_envelope(envelope: Any) -> Any:
    if not isinstance(envelope, dict) or "devwidget" not in envelope:
        raise Unexpected("an object with `devwidget`, `record` and `data`", envelope)
    version, kind = envelope["devwidget"], envelope.get("record")
    if type(version) is not int or version < 1:
        raise Unexpected("a whole number of 1 or more as the version `devwidget`", version)
    if version > SCHEMA_VERSION:
        what = Message("saved by a newer devwidget, with schema {version}; this is {own}", version=version, own=__version__)
        raise UnreadableError(what, instead="pip install --upgrade devwidget")
    record = _load_kind(kind) if isinstance(kind, str) else None
    if record is None:
        raise Unexpected(f"one of {', '.join(list_kinds())} as `record`", kind)
    return contextvars.copy_context().run(_read_data, record, envelope)


def _read_data(record: type, envelope: Mapping[str, Any]) -> Any:
    """Read the record by the tables of its file, in its own context."""
    shared = envelope.get("shared", [])
    if type(shared) is not list:
        raise Unexpected("a list as `shared`", shared)
    shared_parts.set(SharedParts(shared))
    known_messages.set(read_messages(envelope.get("messages", {})))
    return make_reader(record)(envelope.get("data"))


def read_messages(table: Any) -> dict[str, Message]:
    """Return a message for each text. A message may be part of later ones."""
    if not isinstance(table, dict):
        raise Unexpected("an object as `messages`", table)
    known: dict[str, Message] = {}
    for text, made_from in table.items():
        match made_from:
            case [str(template), dict(facts)] if all(isinstance(fact, (str, int)) for fact in facts.values()):
                facts = {name: known.get(fact, fact) for name, fact in facts.items()}
            case _:
                raise Unexpected("a template and its facts for each of `messages`", made_from)
        try:
            known[text] = Message(template, **facts)
        except KeyError as missing:
            raise Unexpected(f"the fact {missing} of a template in `messages`", template) from None
        if known[text] != text:
            raise Unexpected("a template with the words of its message", template)
    return known


def _make_unreadable(why: str) -> UnreadableError:
    return UnreadableError(Message("not a saved devwidget record: {problem}", problem=why))
