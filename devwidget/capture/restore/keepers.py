"""What is kept of an object: who it is, what it held, and how that is read, compared and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from devwidget.capture.object_fields import class_name
from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message


def always_same(now: Any, before: Any) -> bool:
    """Of what only leads to other objects, which are kept themselves."""
    return True


def no_parts(before: Any) -> Iterable[Any]:
    """Of what holds no objects."""
    return ()


class Keeper(NamedTuple):
    """How objects of one kind are kept.

    Attributes:
        read: what an object holds, as a value that stays what it is.
        write: make it hold that again; None for what is only named when it has changed.
        same: whether what is read now is what was read before.
        parts: objects in what was read, for the search to go on.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object] | None = None
    same: Callable[[Any, Any], bool] = always_same
    parts: Callable[[Any], Iterable[Any]] = no_parts


@dataclass(slots=True)
class Kept:
    """What one object held."""

    owner: Any
    before: Any
    keeper: Keeper

    def parts(self) -> Iterable[Any]:
        """The objects to search."""
        return self.keeper.parts(self.before)

    def has_changed(self) -> bool:
        """Whether the object is not what it was."""
        return not self.keeper.same(self.keeper.read(self.owner), self.before)

    def put_back(self) -> None:
        """Make the object what it was; one that still is, is not touched.

        Raises:
            NotRestored: if it has changed and is not written.
        """
        if not self.has_changed():
            return
        if self.keeper.write is None:
            raise NotRestored(Message("a {kind} that has changed", kind=class_name(type(self.owner))))
        self.keeper.write(self.owner, self.before)
