"""Records to JSON: plain objects, one schema version for all of them; `json_io` reads them back."""

from __future__ import annotations

import functools
import json
from typing import Any

from devwidget._version import __version__
from devwidget.records.schema.message import Message
from devwidget.records.schema.process_local import saved_fields

SCHEMA_VERSION = 1
"""Counts changes that older versions cannot read. A new field with a default is none: they ignore it."""


def dumps(record: Any) -> str:
    """JSON text of a Snapshot, a Trace, a Finding, an Explanation or a Plan.

    Messages are texts in it; `messages` says of each the template and the facts that it was made from.

    It is ASCII: a name may hold what UTF-8 cannot, such as half of a surrogate pair.
    """
    messages: dict[str, tuple[str, dict[str, str | int]]] = {}

    def fields(part: Any) -> dict[str, Any]:
        found = {name: getattr(part, name) for name in _names(part.__class__)}
        for name in _texts(part.__class__):
            _note(found[name], messages)
        return found

    envelope = {"devwidget": SCHEMA_VERSION, "written_by": __version__, "record": type(record).__name__, "data": record}
    return json.dumps({**envelope, "messages": messages}, default=fields)  # in order: `messages` is whole when it is written


def _note(value: Any, messages: dict[str, tuple[str, dict[str, str | int]]]) -> None:
    if isinstance(value, Message):
        for fact in value.facts.values():  # those inside stand before it
            _note(fact, messages)
        messages[str(value)] = value.template, value.facts
    elif isinstance(value, tuple):
        for part in value:
            _note(part, messages)


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in saved_fields(kind))


@functools.cache
def _texts(kind: type) -> tuple[str, ...]:
    """The fields that may hold a message, or several."""
    return tuple(field.name for field in saved_fields(kind) if field.type in ("str", "tuple[str, ...]"))
