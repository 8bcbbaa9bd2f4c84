"""What is kept of an object: who it is, what it held, and how that is read, compared and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from devwidget.capture.object_fields import class_name, is_exactly
from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message

Entries = Iterable[tuple[Any, Any]]
"""Key or name of each part, and the part."""


def always_same(now: Any, before: Any) -> bool:
    """Of what only leads to other objects, which are kept themselves."""
    return True


def no_entries(before: Any) -> Entries:
    """Of what holds no objects."""
    return ()


def item_label(key: Any) -> str:
    """How an item is written behind the name of its container."""
    if is_exactly(key, (str, int, bool)):
        return f"[{key!r}]"
    return f"[a {type(key).__name__}]"


class Keeper(NamedTuple):
    """How objects of one kind are kept.

    Attributes:
        read: what an object holds, as a value that stays what it is.
        write: make it hold that again; None for what is only named when it has changed.
        same: whether what is read now is what was read before.
        entries: objects in what was read, for the search to go on.
        label: how a part is written behind the name of the object, from its key.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object] | None = None
    same: Callable[[Any, Any], bool] = always_same
    entries: Callable[[Any], Entries] = no_entries
    label: Callable[[Any], str] = item_label


@dataclass(slots=True)
class Kept:
    """What one object held."""

    owner: Any
    before: Any
    keeper: Keeper

    def entries(self) -> Entries:
        """The parts to search."""
        return self.keeper.entries(self.before)

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
