"""Fields of records: sizes that a loaded file is held to, and what a record can only do in the process that made it."""

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
"""Of one dimension of a shape; -1 where it is ragged."""
Duration = Annotated[float, AtLeast(0)]
"""Seconds."""


class OneOf:
    """Base of records of which a field holds one or another: a file names which, as `is`."""

    __slots__ = ()


_T = TypeVar("_T")


class ProcessLocal(Generic[_T]):
    """Holds something live for a record, such as the model that a plan asks.

    Declare it as the last field of a frozen record, `_questions: ProcessLocal[Questions] = process_local()`, and hand it out
    with `dataclasses.replace(record, _questions=ProcessLocal(questions))`.

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
    """A field for a `ProcessLocal`, which is neither compared, nor shown, nor saved."""
    return dataclasses.field(default=_NOTHING, repr=False, compare=False, kw_only=True, metadata={"is_saved": False})


SHARED = {"is_shared": True}
"""Metadata of a field whose value many parts of one record have in common: a file holds each object once, below `shared`."""


def saved_fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a record that go to files."""
    return tuple(field for field in dataclasses.fields(kind) if field.metadata.get("is_saved", True))
