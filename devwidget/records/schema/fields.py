"""Field types of records: bounds that loaded files must keep, and values that exist only in their process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The smallest number that a field may hold."""

    least: int


Size = Annotated[int, AtLeast(0)]
"""Bytes, or a count."""
Length = Annotated[int, AtLeast(-1)]
"""One dimension of a shape; -1 if ragged."""
Duration = Annotated[float, AtLeast(0)]
"""Seconds."""


class OneOf:
    """Base of records that share a field: a file names the kind as `is`."""

    __slots__ = ()


_T = TypeVar("_T")


class ProcessLocal(Generic[_T]):
    """Holds a live object for a record, such as the model behind a plan.

    Declare it as the last field of a frozen record, `_questions: ProcessLocal[Questions] = process_local()`, and set it with
    `dataclasses.replace(record, _questions=ProcessLocal(questions))`.

    Attributes:
        value: None in a record that was loaded, sent to another process, or made by hand.
    """

    __slots__ = ("value",)

    def __init__(self, value: _T | None = None) -> None:
        self.value = value

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessLocal[_T]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ProcessLocal, ()


_NOTHING: ProcessLocal[Any] = ProcessLocal()


def process_local() -> Any:
    """Return a field for a `ProcessLocal`, which is neither compared, nor shown, nor saved."""
    return dataclasses.field(default=_NOTHING, repr=False, compare=False, kw_only=True, metadata={"is_saved": False})


SHARED = {"is_shared": True}
"""Field metadata: many parts of a record share the value, and a file stores each object once, below `shared`."""


def saved_fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a record that are saved."""
    return tuple(field for field in dataclasses.fields(kind) if field.metadata.get("is_saved", True))
