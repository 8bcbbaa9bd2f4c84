"""Records to JSON: plain objects, one schema version for all of them; `json_io` reads them back."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

from devwidget._version import __version__

SCHEMA_VERSION = 1
"""Counts changes that older versions cannot read. A new field with a default is none: they ignore it."""


def dumps(record: Any) -> str:
    """JSON text of a Snapshot, a Trace, a Finding, an Explanation or a Plan.

    It is ASCII: a name may hold what UTF-8 cannot, such as half of a surrogate pair.
    """
    envelope = {"devwidget": SCHEMA_VERSION, "written_by": __version__, "record": type(record).__name__, "data": record}
    return json.dumps(envelope, default=_fields)


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _names(record.__class__)}


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))
