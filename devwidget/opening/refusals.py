"""Damaged files: whatever is wrong inside of one is said as one refusal, with the place in the file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from devwidget.records.errors import UnreadableError, error_text
from devwidget.records.loading.typed_reader import Unexpected

_T = TypeVar("_T")


class ReadingPlace:
    """How far a file has been read."""

    def __init__(self) -> None:
        self._list, self._index = "", -1

    def move_to(self, path: str) -> None:
        """Read from a path on."""
        self._list, self._index = path, -1

    def iterate_list(self, path: str, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items of the list at a path."""
        self.move_to(path)
        # Whoever is told of a failure asks for it.
        for self._index, item in enumerate(items):
            yield item
        self._index = -1

    def __str__(self) -> str:
        return f"{self._list}[{self._index}]" if self._index >= 0 else self._list


@contextlib.contextmanager
def refuse_damaged(worded: Callable[[str], str]) -> Iterator[ReadingPlace]:
    """Refuse the file for whatever goes wrong while it is read.

    Args:
        worded: what to say, given what is wrong and where.

    Raises:
        UnreadableError: in place of every exception.
    """
    place = ReadingPlace()
    try:
        yield place
    except UnreadableError:
        raise
    except Unexpected as wrong:
        if str(place):
            wrong.inside(str(place))
        raise UnreadableError(worded(wrong.told())) from None
    except Exception as error:  # a file that others wrote holds anything
        said = error_text(error)
        raise UnreadableError(worded(f"{place}: {said}" if str(place) else said)) from None
