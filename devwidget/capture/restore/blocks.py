"""Bytes that are no tensor: bytearrays, arrays of Python and of NumPy."""

from __future__ import annotations

import array
import sys
import zlib
from collections.abc import Iterable
from typing import Any

from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message

MOST_BYTES = 16 << 20
"""Copied of all blocks together. Of what is beyond only a checksum is taken: it tells that a block was changed."""


class Budget:
    """Bytes that may still be copied."""

    def __init__(self, left: int = MOST_BYTES) -> None:
        self._left = left

    def take(self, size: int) -> bool:
        """True if that many bytes may be copied."""
        granted = size <= self._left
        self._left -= size if granted else 0
        return granted


class Block:
    """What one block held."""

    def __init__(self, owner: Any, budget: Budget) -> None:
        self.owner = owner
        self._copy = _copied(owner) if budget.take(_size(owner)) else None
        self._sum = None if self._copy is not None else _checksum(owner)

    def parts(self) -> Iterable[Any]:
        """Nothing to be searched."""
        return ()

    labelled = parts

    def put_back(self) -> None:
        """Write the copy back.

        Raises:
            NotRestored: if the block was changed, and was too large to be copied.
        """
        if self._copy is not None:
            _write(self.owner, self._copy)
        elif _checksum(self.owner) != self._sum:
            raise NotRestored(Message("it was changed, and more than {size} MiB are not copied", size=MOST_BYTES >> 20))


def is_block(kind: type) -> bool:
    """Whether instances of a type are blocks."""
    return issubclass(kind, bytearray | array.array) or _is_numpy(kind)


def _is_numpy(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _plain(owner: Any) -> Any:
    """A NumPy array without its subclass, whose methods are the user's."""
    numpy = sys.modules["numpy"]
    return numpy.ndarray.view(owner, numpy.ndarray)


def _size(owner: Any) -> int:
    return memoryview(owner).nbytes if not _is_numpy(type(owner)) else int(_plain(owner).nbytes)


def _copied(owner: Any) -> Any:
    if _is_numpy(type(owner)):
        return _plain(owner).copy()
    return (bytearray if isinstance(owner, bytearray) else array.array).__getitem__(owner, slice(None))


def _write(owner: Any, copy: Any) -> None:
    if not _is_numpy(type(owner)):
        kind: Any = bytearray if isinstance(owner, bytearray) else array.array
        kind.__setitem__(owner, slice(None), copy)
        return
    numpy = sys.modules["numpy"]
    if numpy.ndarray.shape.__get__(owner) != copy.shape:
        numpy.ndarray.resize(owner, copy.shape, refcheck=False)
    if _plain(owner).flags.writeable:  # what cannot be written has not been
        numpy.copyto(_plain(owner), copy)


def _checksum(owner: Any) -> int | None:
    """None for what is not one piece of memory, or of objects."""
    try:
        return zlib.crc32(memoryview(_plain(owner) if _is_numpy(type(owner)) else owner).cast("B"))
    except (TypeError, ValueError, BufferError):
        return None
