"""Build frozen records at a quarter of the price, for snapshots of 100,000 modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def quick(record: Callable[P, T]) -> Callable[P, T]:
    """A constructor that takes what that of a frozen dataclass with slots takes, and returns the same record.

    A frozen class stores each field through `object.__setattr__` (0.9 us for 13 fields). One with the same slots that
    is not frozen stores them directly, and Python lets an object change to a class of the same layout (0.2 us).
    """

    def seal(self: Any) -> None:
        self.__class__ = record

    kind: Any = record
    fields: Any = [(field.name, Any, dataclasses.field(default=field.default)) for field in dataclasses.fields(kind)]
    name, namespace = f"_Draft{record.__name__}", {"__post_init__": seal}
    return dataclasses.make_dataclass(name, fields, namespace=namespace, slots=True)
