"""Records to JSON and back: plain objects, one schema version for all of them."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any

from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding
from devwidget.records.plan import Plan
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace

SCHEMA_VERSION = 1
_ROOTS: dict[str, type] = {kind.__name__: kind for kind in (Snapshot, Trace, Finding, Explanation, Plan)}


def dumps(record: Any) -> str:
    """JSON text of a Snapshot, a Trace, a Finding, an Explanation or a Plan."""
    envelope = {"devwidget": SCHEMA_VERSION, "record": type(record).__name__, "data": dataclasses.asdict(record)}
    return json.dumps(envelope, ensure_ascii=False)


def loads(text: str) -> Any:
    """The record that `dumps` wrote.

    Raises:
        ValueError: if the text is not JSON of ours, or of a schema that this version does not know.
    """
    try:
        envelope = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a saved devwidget record: {error}") from None
    if not isinstance(envelope, dict) or envelope.get("record") not in _ROOTS:
        raise ValueError(f"not a saved devwidget record; expected one of {', '.join(_ROOTS)}")
    if envelope.get("devwidget") != SCHEMA_VERSION:
        raise ValueError(f"saved with schema {envelope.get('devwidget')}, this version reads schema {SCHEMA_VERSION}")
    return _build(_ROOTS[envelope["record"]], envelope["data"])


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _build(hint: Any, value: Any) -> Any:
    """`value` as JSON holds it -> a value of type `hint`."""
    if value is None:
        return None
    if dataclasses.is_dataclass(hint):
        hints = _fields(typing.cast(type, hint))
        return typing.cast(Any, hint)(**{name: _build(hints[name], part) for name, part in value.items()})
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _build(next(arg for arg in args if arg is not types.NoneType), value)
    if origin is tuple:
        inner = args[:1] * len(value) if args[-1:] == (Ellipsis,) else args
        return tuple(_build(each, part) for each, part in zip(inner, value, strict=True))
    return value
