"""What is kept of an object: who it is, what it held, and how that is read, compared and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from devwidget.capture.object_fields import class_name
from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message

Label = tuple[str, Any]
"""How a part is called from the object that holds it, "" where a reader would know no name, and the part."""


def always_same(now: Any, before: Any) -> bool:
    """Of what only leads to other objects, which are kept themselves."""
    return True


def _no_parts(before: Any) -> Iterable[Any]:
    return ()


class Keeper(NamedTuple):
    """How objects of one kind are kept.

    Attributes:
        read: what an object holds, as a value that stays what it is.
        write: make it hold that again; None for what is only named when it has changed.
        same: whether what is read now is what was read before.
        parts: objects in what was read, for the search to go on.
        labels: the same with how each is called; None where a reader would know no names.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object] | None = None
    same: Callable[[Any, Any], bool] = always_same
    parts: Callable[[Any], Iterable[Any]] = _no_parts
    labels: Callable[[Any], Iterable[Label]] | None = None


@dataclass(slots=True)
class Kept:
    """What one object held."""

    owner: Any
    before: Any
    keeper: Keeper

    def list_parts(self) -> Iterable[Any]:
        """Objects to search."""
        return self.keeper.parts(self.before)

    def label_parts(self) -> Iterable[Label]:
        """The same with how each is called from here."""
        if self.keeper.labels is None:
            return (("", part) for part in self.list_parts())
        return self.keeper.labels(self.before)

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
