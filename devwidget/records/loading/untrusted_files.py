"""Read untrusted files: report damage as one error with its place, and load pickles of plain values only.

Source of the operations: `pickletools` of Python, which describes each.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, TypeVar

from devwidget.records.errors import UnreadableError, error_text, message
from devwidget.records.loading.typed_reader import Unexpected
from devwidget.records.schema.message import Message

_T = TypeVar("_T")


class ReadingPlace:
    """How far a file has been read."""

    def __init__(self) -> None:
        self._list, self._index = "", -1

    def move_to(self, path: str) -> None:
        """Continue at a path."""
        self._list, self._index = path, -1

    def iterate_list(self, path: str, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items of the list at a path."""
        self.move_to(path)
        # The index is part of the message of a failure.
        for self._index, item in enumerate(items):
            yield item
        self._index = -1

    def __str__(self) -> str:
        if self._index >= 0:
            return f"{self._list}[{self._index}]"
        return self._list


@contextlib.contextmanager
def refuse_damaged(worded: Callable[[str], str]) -> Iterator[ReadingPlace]:
    """Turn every error in the block into one error on the file.

    Args:
        worded: makes the message from the problem and its place.

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
            wrong.prepend_path(str(place))
        raise UnreadableError(worded(wrong.describe_problem())) from None
    except Exception as error:  # a file that others wrote holds anything
        said = error_text(error)
        raise UnreadableError(worded(f"{place}: {said}" if str(place) else said)) from None


class RefusedPickle(Exception):
    """A pickle needs more than plain values."""


class _PlainUnpickler(pickle.Unpickler):
    """Refuses all objects other than plain values: each begins with the name of a class or a function."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise RefusedPickle(f"it asks for {module_name[:80]}.{global_name[:80]}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise RefusedPickle("it asks for an object outside of the file")


def load_plain(written: bytes) -> Any:
    """Load plain values. Raises UnreadableError for anything else, and for sizes beyond the file."""
    try:
        scan_pickle(written)
        return _PlainUnpickler(io.BytesIO(written)).load()
    except Exception as error:
        # A broken pickle raises anything, as the documentation of `pickle` says.
        said = error_text(error) if isinstance(error, MemoryError) else message(error)
        raise UnreadableError(Message("not a pickle of plain values: {error}", error=said)) from None


# Many more than torch writes. Python hashes tuples inside of each other on the stack of C, which 100,000 overflow.
MOST_TUPLES = 2**15

# Operations that take no more than they show, which are most of them: numbers, lists, dicts, what was made before.
_PASSED = re.compile(rb"(?s:[(012N\x88\x89\x94})\]aesuld]|[Kqh\x80].|M..|[Jj].{4}|G.{8})*+")
# Those that begin with the length of what follows -> bytes of that length.
_LENGTHS = {b"C": 1, b"U": 1, b"\x8c": 1, b"\x8a": 1, b"X": 4, b"B": 4, b"T": 4, b"\x8b": 4, b"\x8d": 8, b"\x8e": 8, b"\x95": 8}
_FRAME = b"\x95"
_LINES = frozenset((b"I", b"L", b"F", b"S", b"V", b"g"))
_TUPLES = frozenset((b"t", b"\x85", b"\x86", b"\x87"))
# The end, and operations for classes or objects outside of the file: reading stops at them.
_REFUSED_LATER = frozenset((b".", b"c", b"i", b"\x93", b"P", b"Q"))


class Implausible(ValueError):
    """A pickle declares more data than it has."""


def scan_pickle(written: bytes) -> None:
    """Check each operation of a pickle up to its end.

    Raises:
        Implausible: with the place, if an operation declares more bytes or objects than the file has, or creates other than
            plain values.
    """
    at = tuples = 0
    while True:
        at = _PASSED.match(written, at).end()  # type: ignore[union-attr]  # it matches nothing too
        code = written[at : at + 1]
        if code in _REFUSED_LATER:
            return
        at += 1
        if code in _LENGTHS:
            at = _skip_operand(written, at, _LENGTHS[code], is_frame=code == _FRAME)
        elif code in _TUPLES and tuples < MOST_TUPLES:
            tuples += 1
        elif code in _LINES:
            at = written.find(b"\n", at) + 1 or len(written)
        elif code == b"r" and int.from_bytes(written[at : at + 4], "little") <= len(written):
            at += 4
        elif code == b"p" and (line := re.compile(rb"(\d{1,18})\n").match(written, at)) and int(line[1]) <= len(written):
            at = line.end()
        else:
            raise Implausible(f"byte {at - 1}: {_describe_operation(code)}")


def _skip_operand(written: bytes, at: int, width: int, *, is_frame: bool) -> int:
    """Return the end of an operand with a length prefix. A frame has only the length."""
    size = int.from_bytes(written[at : at + width], "little")
    if size > len(written) - at - width:
        raise Implausible(f"byte {at}: {size} bytes, and the file ends before")
    return at + width + (0 if is_frame else size)


def _describe_operation(code: bytes) -> str:
    if code in _TUPLES:
        return f"more than {MOST_TUPLES} tuples"
    if code:
        return f"{code!r} is nothing of a plain value, or claims more than the file has"
    return "the file ends"
