"""Records of many files that are mostly alike, as those of the ranks of a job: what several of them hold is read once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from devwidget.records.loading.json_io import DECODER, loads, read_messages
from devwidget.records.loading.typed_reader import Reader, Unexpected, field_readers, known_messages, record_builder
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import SCHEMA_VERSION, saved_kinds

_HEAD = re.compile(rf'\{{"devwidget": {SCHEMA_VERSION}, "written_by": "[\w.+-]*", "record": "(\w+)", "data": \{{')
_NAME = re.compile(r'"(\w+)": ')
_TAIL = '}, "messages": '
_SHORTEST, _MOST = 64, 32
"""Characters of a part that is worth being kept, and how many different ones of one field are."""
_LONGEST = 2**24

_Parts = dict[str, list[tuple[str, Any]]]
"""By field: texts that stood there, and what they are."""


class _Other(Exception):
    """A text that `dumps` did not write, or not just so."""


class AlikeFiles:
    """Reads the texts of one kind of record as `loads` does, and makes one object of parts that are equal.

    A list or an object of JSON ends with its last bracket: a text that goes on as one that is known holds that part, whatever
    comes after it, and to compare them takes a thousandth of the time of parsing. Whatever is not just as `dumps` writes it is
    read by `loads`, which says what is wrong. Several threads may read at once.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Parts] = {}
        """By the kind of record and the messages of the file, which say what its texts are."""

    def loads(self, text: str) -> Any:
        """Return the record of a text; raises what `loads` raises."""
        try:
            return self._read_parts(text)
        except (_Other, Unexpected, ValueError, RecursionError):
            return loads(text)

    def _read_parts(self, text: str) -> Any:
        head, end = _HEAD.match(text), text.rfind(_TAIL)
        if head is None or end < 0 or head[1] not in saved_kinds or len(text) > _LONGEST:
            raise _Other
        kind, messages = saved_kinds[head[1]], text[end + len(_TAIL) :]
        if (head[1], messages) not in self._known and len(self._known) >= _MOST:
            raise _Other
        known = self._known.setdefault((head[1], messages), {})
        token = known_messages.set(_parse_messages(messages))
        try:
            return record_builder(kind)(_read_fields(text, head.end(), end, field_readers(kind), known))
        finally:
            known_messages.reset(token)


def _parse_messages(text: str) -> Mapping[str, Message]:
    """Parse the end of a file, whose last bracket closes its envelope."""
    table, end = DECODER.raw_decode(text)
    if text[end:] != "}":
        raise _Other
    return read_messages(table)


def _read_fields(text: str, at: int, end: int, readers: Mapping[str, Reader], known: _Parts) -> dict[str, Any]:
    """Read the fields that stand from one place of a text to another."""
    fields, names = {}, set()
    while named := _NAME.match(text, at):
        name, at = named[1], named.end()
        reader, parts = readers.get(name, _pass_over), known.setdefault(name, [])
        part, at = _read_part(text, at, reader, parts)
        if name in readers:
            fields[name] = part
        if name in names:
            raise _Other
        names.add(name)
        if at == end:
            return fields
        if not text.startswith(", ", at):
            break
        at += len(", ")
    raise _Other


def _pass_over(value: Any) -> None:
    """Read a field of a newer version, which this one leaves out."""


def _read_part(text: str, at: int, reader: Reader, parts: list[tuple[str, Any]]) -> tuple[Any, int]:
    """Read what stands at a place: the part, and where it ends."""
    for known, part in parts:
        if text.startswith(known, at):
            return part, at + len(known)
    value, end = DECODER.raw_decode(text, at)
    part = reader(value)
    if type(value) in (list, dict) and end - at >= _SHORTEST and len(parts) < _MOST:
        parts.append((text[at:end], part))
    return part, end
