"""How an object's state is read, compared and written back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from devwidget.capture.object_fields import class_name
from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message


class Keeper(NamedTuple):
    """How objects of one kind are kept.

    Attributes:
        read: returns the content of an object as an immutable value.
        write: writes that content back; None for objects that are only reported if they changed.
        same: returns whether the content is unchanged; always for an object that only leads to others, which are kept
            themselves.
        parts: returns the objects in the content, to continue the search; none by default.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object] | None = None
    same: Callable[[Any, Any], bool] = lambda now, before: True
    parts: Callable[[Any], Iterable[Any]] = lambda before: ()


@dataclass(slots=True)
class Kept:
    """The content of one object."""

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
