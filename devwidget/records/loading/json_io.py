"""Records from JSON: plain objects, one schema version for all of them, from a file that may be anything by now."""

from __future__ import annotations

import contextvars
import json
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar, cast

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

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def read_regular(path: str | os.PathLike[str], most: int, *, first: int | None = None) -> bytes:
    """What is in a file, as long as it was when it was opened; nothing waits for it.

    Args:
        path: a link is followed.
        most: bytes that it may have.
        first: read no more than so many.

    Raises:
        UnreadableError: if it is no regular file, or has more bytes.
        OSError: if it cannot be opened.
    """
    _check_size(os.stat(path), path, most)  # to open a device may do something, and to open a socket fails with a riddle
    opened = os.open(path, _FLAGS)
    try:
        size = _check_size(os.fstat(opened), path, most)
    except BaseException:
        os.close(opened)
        raise
    with os.fdopen(opened, "rb") as file:
        return file.read(size if first is None else min(size, first))


def _check_size(found: os.stat_result, path: str | os.PathLike[str], most: int) -> int:
    name = pathlib.Path(path).name or str(path)
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableError(Message("{name} is no regular file", name=name))
    if found.st_size > most:
        size = f"{found.st_size:,}"
        raise UnreadableError(Message("{name} has {size} bytes, more than any has", name=name, size=size))
    return found.st_size


T = TypeVar("T")
LARGEST_TEXT = 2**30
"""Characters; a snapshot of 100,000 modules takes 2**26."""
_LONG = 2**24


def load(path: str | pathlib.Path, most: int = LARGEST_TEXT) -> Any:
    """The record in a file of so many bytes at most; raises as `loads` does, and what opening the file raises."""
    try:
        return loads(read_regular(path, most).decode())
    except UnicodeDecodeError as error:
        raise _make_unreadable(Message("no UTF-8 text: {error}", error=error)) from None


def loads(text: str) -> Any:
    """The record that `dumps` wrote; fields that this version does not know are left out.

    Raises:
        ValueError: if the text is not JSON of ours, or of a schema that this version does not know; the message names the
            place in the file.
    """
    if len(text) > LARGEST_TEXT:
        raise _make_unreadable(Message("{count} characters, more than any has", count=f"{len(text):,}"))
    try:
        first, _, more = text.partition("\n")
        if more:
            join = _find_join(first[:_HEAD])
        else:
            join = None
        if join is None:
            return _read_envelope(_parse_json(text))
        return _join_lines(text, join)
    except RecursionError:
        raise _make_unreadable(Message("lists or objects are nested too deeply")) from None
    except Unexpected as wrong:
        raise _make_unreadable(wrong.describe_problem()) from None


_KIND, _HEAD = re.compile(r'"record": "(\w+)"'), 200
"""What stands at the head of a file, and how many characters that are."""
_joins: dict[str, Callable[[Iterable[Any]], Any]] = {}


def register_join(kind: str, join: Callable[[Iterable[Any]], Any]) -> None:
    """Register how records of one kind become one, of a file that grows: each of its lines is one."""
    _joins[kind] = join


_former: dict[str, tuple[str, str]] = {}


def refuse_former(kind: str, field: str, why: str) -> None:
    """Register by which field files of one kind are told that an older version wrote, and what is said of them."""
    _former[kind] = field, why


def _find_join(head: str) -> Callable[[Iterable[Any]], Any] | None:
    named = _KIND.search(head)
    if named is None:
        return None
    _load_kind(named[1])
    return _joins.get(named[1])


def _join_lines(text: str, join: Callable[[Iterable[Any]], Any]) -> Any:
    """The record of a file that has grown; its last line may still be on the way."""
    whole, _, _ = text.rpartition("\n")
    return join(_read_envelope(_parse_json(line)) for line in whole.split("\n") if line)


def list_kinds() -> list[str]:
    """Name the kinds of records that can be read."""
    return sorted({*saved_kinds, *extras.offered("records")})


def _load_kind(kind: str) -> type | None:
    """The record of this name; that of an extra is imported, with its checks."""
    extras.find_home("records", kind)
    return saved_kinds.get(kind)


def reread(record: T) -> T:
    """The record as its file would give it back: what others wrote can make one that no view shows.

    Raises:
        Unexpected: with the place in the record.
    """
    return cast(T, _read_envelope(_parse_json(dumps(record))))


def refuse_brackets(text: str | bytes) -> None:
    """Refuse a long text that is little else: an empty list takes 56 bytes of memory for two of a text.

    Raises:
        Unexpected: if there is more than one bracket for each eight characters.
    """
    if isinstance(text, str):
        brackets = text.count("[") + text.count("{")
    else:
        brackets = text.count(b"[") + text.count(b"{")
    if len(text) > _LONG and brackets * 8 > len(text):
        raise Unexpected(Message("more than brackets"))


def _parse_json(text: str) -> Any:
    refuse_brackets(text)
    try:
        return DECODER.decode(text)
    except ValueError as error:  # also of a number with too many digits
        raise Unexpected(Message("JSON; {error}", error=error)) from None


def _read_envelope(envelope: Any) -> Any:
    if not isinstance(envelope, dict) or "devwidget" not in envelope:
        raise Unexpected(Message("an object with `devwidget`, `record` and `data`"), envelope)
    version, kind = envelope["devwidget"], envelope.get("record")
    if type(version) is not int or version < 1:
        raise Unexpected(Message("a whole number of 1 or more as the version `devwidget`"), version)
    if version > SCHEMA_VERSION:
        raise UnreadableError(
            _describe_newer_version(version, envelope.get("written_by")), instead="pip install --upgrade devwidget"
        )
    record = _load_kind(kind) if isinstance(kind, str) else None
    if record is None:
        raise Unexpected(Message("one of {known} as `record`", known=", ".join(list_kinds())), kind)
    former, why = _former.get(record.__name__, ("", ""))
    if former and former in envelope.get("data", ()):
        raise UnreadableError(why)
    return contextvars.copy_context().run(_read_data, record, envelope)


def _read_data(record: type, envelope: Mapping[str, Any]) -> Any:
    """Read the record by the tables of its file, in a context of its own."""
    shared = envelope.get("shared", [])
    if type(shared) is not list:
        raise Unexpected(Message("a list as `shared`"), shared)
    shared_parts.set(SharedParts(shared))
    known_messages.set(read_messages(envelope.get("messages", {})))
    return make_reader(record)(envelope.get("data"))


def read_messages(table: Any) -> dict[str, Message]:
    """Text -> the message that it is; one may be a part of those after it."""
    if not isinstance(table, dict):
        raise Unexpected(Message("an object as `messages`"), table)
    known: dict[str, Message] = {}
    for text, made_from in table.items():
        match made_from:
            case [str(template), dict(facts)] if all(isinstance(fact, (str, int)) for fact in facts.values()):
                facts = {name: known.get(fact, fact) for name, fact in facts.items()}
            case _:
                raise Unexpected(Message("a template and its facts for each of `messages`"), made_from)
        try:
            known[text] = Message(template, **facts)
        except KeyError as missing:
            raise Unexpected(Message("the fact {name} of a template in `messages`", name=missing), template) from None
        if known[text] != text:
            raise Unexpected(Message("a template with the words of its message"), template)
    return known


def _make_unreadable(why: str) -> UnreadableError:
    return UnreadableError(Message("not a saved devwidget record: {problem}", problem=why))


def _describe_newer_version(version: int, written_by: object) -> str:
    known = isinstance(written_by, str) and written_by.replace(".", "").isalnum()
    return Message(
        "saved with schema {version}: reading it needs devwidget {needed}, this is {own} with schema {known}",
        version=version,
        needed=written_by if known else Message("a newer one"),
        own=__version__,
        known=SCHEMA_VERSION,
    )


def _refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        again = repr(next(name for name in names if names.count(name) > 1))
        raise Unexpected(Message("every name once, not {name} again", name=again))
    return found


def _refuse_infinity(word: str) -> NoReturn:
    raise Unexpected(Message("a finite number, not {word}", word=word))


DECODER = json.JSONDecoder(object_pairs_hook=_refuse_repeated_names, parse_constant=_refuse_infinity)
"""Of JSON of ours; raises ValueError, or Unexpected for what JSON of others may have."""
