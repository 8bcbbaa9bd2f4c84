"""How an object's state is read, compared and written back, and what could not be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from devwidget.capture.object_fields import class_name
from devwidget.records.schema.message import Message


class Keeper(NamedTuple):
    """How objects of one kind are kept.

    Attributes:
        read: returns the content of an object as an immutable value.
        write: writes that content back; None for objects that are only reported if they changed.
        same: returns whether the content is unchanged; always for an object that only leads to others, which are kept
            themselves.
        parts: returns the objects in the content, to continue the search; none by default.
        is_random: it keeps a random generator, which is written last.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object] | None = None
    same: Callable[[Any, Any], bool] = lambda now, before: True
    parts: Callable[[Any], Iterable[Any]] = lambda before: ()
    is_random: bool = False


@dataclass(slots=True)
class Kept:
    """The content of one object, or of a setting, whose owner is its name."""

    owner: Any
    before: Any
    keeper: Keeper

    def parts(self) -> Iterable[Any]:
        """Return the objects to search."""
        return self.keeper.parts(self.before)

    def has_changed(self) -> bool:
        """Return whether the object has changed."""
        return not self.keeper.same(self.keeper.read(self.owner), self.before)

    def put_back(self) -> None:
        """Restore the object. An unchanged object is not touched.

        Raises:
            NotRestored: if it has changed and cannot be written.
        """
        if not self.has_changed():
            return
        if self.keeper.write is None:
            raise NotRestored(Message("a {kind} that has changed", kind=class_name(type(self.owner))))
        self.keeper.write(self.owner, self.before)


class NotRestored(Exception):
    """The state is lost. The text is the reason that the user reads."""


class Undoing:
    """Runs all steps, even if one of them fails, and remembers those that failed.

    Attributes:
        lost: what could not be restored, an object or its name, and why.
    """

    def __init__(self) -> None:
        self.lost: list[tuple[Any, str]] = []

    def attempt_step(self, owner: Any, undo: Callable[[], object]) -> None:
        """Run one step. If it fails, keep the reason with what it should have restored."""
        try:
            undo()
        except Exception as error:
            self.lost.append((owner, format_reason(error)))

    def put_all_back(self, states: Iterable[Kept]) -> None:
        """Restore some objects."""
        for kept in states:
            self.attempt_step(kept.owner, kept.put_back)


def format_reason(error: BaseException) -> str:
    """Return an exception as one line. Only torch's and Python's own exceptions are asked for their text."""
    kind = type(error)
    if kind is NotRestored:
        said: str = error.args[0]
        return said
    if kind.__module__ != "builtins":
        return kind.__name__
    words = BaseException.__str__(error).strip().splitlines() or [""]
    if words[0]:
        return f"{kind.__name__}: {words[0]}"
    return kind.__name__
