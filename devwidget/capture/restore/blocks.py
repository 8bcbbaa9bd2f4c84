"""Memory that is no tensor: bytearrays, arrays of Python, of NumPy and of C, files that are mapped into memory."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from devwidget.capture.restore.undoing import NotRestored
from devwidget.records.schema.message import Message

MOST_BYTES = 16 << 20
"""Copied of all blocks together. Of what is beyond only a checksum is taken: it tells that a block was changed."""
MOST_READ_BYTES = 1 << 30
"""Read for all checksums together. What is beyond that, and large files that are mapped, stays unread and is named."""
_CHUNK_BYTES = 1 << 24
_C_TYPES: Any = (ctypes.Array, ctypes.Structure, ctypes.Union, ctypes.c_int.__mro__[1])
_BUFFERS = (bytes, bytearray, memoryview, mmap.mmap, array.array)


class Budget:
    """Bytes that may still be copied, or be read.

    Attributes:
        is_closed: whether nothing is granted for now. The data that a loader draws from may be of any size.
    """

    def __init__(self, left: int = MOST_BYTES) -> None:
        self._left, self.is_closed = left, False

    def take_bytes(self, size: int) -> bool:
        """True if that many bytes may be."""
        granted = size <= self._left
        self._left -= size if granted else 0
        return granted


class BlockContents:
    """What one block held; nothing of one that nobody can write."""

    def __init__(self, owner: Any, copied: Budget, read: Budget) -> None:
        self.owner, size = owner, _block_bytes(owner)
        fixed = not _is_writeable(owner)
        self._base = None if not fixed or _is_read_only(owner) else sys.modules["numpy"].ndarray.base.__get__(owner)
        self._copy = _copy_block(owner) if not fixed and copied.take_bytes(size) else None
        self._large = not fixed and self._copy is None and not read.is_closed
        self._unread = self._large and (isinstance(_memory_of(owner), mmap.mmap) or not read.take_bytes(size))
        self._sum = _checksum_block(owner) if self._large and not self._unread else None

    def list_parts(self) -> Iterable[Any]:
        """The objects in an array of objects, and what a view is of that cannot be written itself."""
        return [value for _, value in self.label_parts()]

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """None has a name that a reader would know."""
        yield "", self._base
        copy: Any = self._copy
        if _is_numpy(type(copy)) and copy.dtype.hasobject:
            yield from (("", each) for each in copy.ravel().tolist())

    def has_changed(self) -> bool:
        """Nobody sees what writes into a block that can be written."""
        return self._copy is not None or self._large

    def put_back(self) -> None:
        """Write the copy back.

        Raises:
            NotRestored: if the block was changed, and was too large to be copied; or too large even to be read.
        """
        if self._copy is not None:
            _write_block(self.owner, self._copy)
        elif self._unread:
            raise NotRestored(Message("not looked at, it is too large to be read"))
        elif self._large and _checksum_block(self.owner) != self._sum:
            raise NotRestored(Message("it was changed, and more than {size} MiB are not copied", size=MOST_BYTES >> 20))


def is_block(kind: type) -> bool:
    """Whether instances of a type are blocks."""
    return issubclass(kind, (bytearray, array.array, mmap.mmap, *_C_TYPES)) or _is_numpy(kind)


def _is_numpy(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _plain_array(owner: Any) -> Any:
    """A NumPy array without its subclass, whose methods are the user's."""
    numpy = sys.modules["numpy"]
    return numpy.ndarray.view(owner, numpy.ndarray)


def _memory_of(owner: Any) -> Any:
    """What an array is a view of in the end; None where it owns its memory."""
    while _is_numpy(type(owner)):
        owner = sys.modules["numpy"].ndarray.base.__get__(owner)
    return owner


def _is_writeable(owner: Any) -> bool:
    """Whether a block can be written by itself."""
    if _is_numpy(type(owner)):
        return bool(_plain_array(owner).flags.writeable)
    if isinstance(owner, mmap.mmap):
        return not _is_closed(owner) and not memoryview(owner).readonly
    return not (isinstance(owner, _BUFFERS) and memoryview(owner).readonly)


def _is_read_only(owner: Any) -> bool:
    """Whether neither a block can be written nor anything that it is a view of."""
    while _is_numpy(type(owner)) and not _is_writeable(owner):
        owner = sys.modules["numpy"].ndarray.base.__get__(owner)
    return owner is None or not _is_writeable(owner)


def _is_closed(owner: mmap.mmap) -> bool:
    return bool(vars(mmap.mmap)["closed"].__get__(owner))


def _block_bytes(owner: Any) -> int:
    if _is_numpy(type(owner)):
        return int(_plain_array(owner).nbytes)
    if isinstance(owner, mmap.mmap):
        return 0 if _is_closed(owner) else mmap.mmap.__len__(owner)
    return memoryview(owner).nbytes if isinstance(owner, bytearray | array.array) else ctypes.sizeof(owner)


def _copy_block(owner: Any) -> Any:
    if _is_numpy(type(owner)):
        return _plain_array(owner).copy()
    if isinstance(owner, _C_TYPES):
        return bytes(owner)
    return _sequence_class(owner).__getitem__(owner, slice(None))


def _write_block(owner: Any, copy: Any) -> None:
    # ctypes has no method that writes a structure or a union whole.
    if isinstance(owner, _C_TYPES):
        ctypes.memmove(ctypes.addressof(owner), copy, len(copy))
    elif not _is_numpy(type(owner)):
        _sequence_class(owner).__setitem__(owner, slice(None), copy)
    else:
        numpy = sys.modules["numpy"]
        if numpy.ndarray.shape.__get__(owner) != copy.shape:
            numpy.ndarray.resize(owner, copy.shape, refcheck=False)
        if _plain_array(owner).flags.writeable:  # what cannot be written has not been
            numpy.copyto(_plain_array(owner), copy)


def _sequence_class(owner: Any) -> Any:
    """The class of Python whose methods read and write it, whatever a subclass says."""
    return next(kind for kind in (bytearray, array.array, mmap.mmap) if isinstance(owner, kind))


def _checksum_block(owner: Any) -> tuple[Any, int]:
    """With the shape, and a piece after the other, since what is not one piece of memory has to be copied for it."""
    if not _is_numpy(type(owner)):
        return None, zlib.crc32(bytes(owner) if isinstance(owner, _C_TYPES) else memoryview(owner))
    numpy, plain, found = sys.modules["numpy"], _plain_array(owner), 0
    if plain.dtype.hasobject:  # its bytes are addresses
        return plain.shape, hash(tuple(map(id, plain.ravel().tolist())))
    rows = max(1, _CHUNK_BYTES * len(plain) // plain.nbytes)
    for first in range(0, len(plain), rows):
        found = zlib.crc32(memoryview(numpy.ascontiguousarray(plain[first : first + rows])).cast("B"), found)
    return plain.shape, found
