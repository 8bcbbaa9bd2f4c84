"""Memory of Python and NumPy outside of tensors."""

from __future__ import annotations

import array
import sys
from typing import Any

from devwidget.capture.restore.containers import ALL
from devwidget.capture.restore.keepers import Keeper

MOST_BYTES = 16 << 20
"""Bytes copied of all arrays together; further arrays are skipped."""


def is_array(kind: type) -> bool:
    """Return whether instances of a class are arrays."""
    return kind is bytearray or kind is array.array or _is_numpy(kind)


def _is_numpy(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def array_bytes(block: Any) -> int:
    """Return the size of an array."""
    if _is_numpy(type(block)):
        return int(_plain(block).nbytes)
    return memoryview(block).nbytes


def _plain(block: Any) -> Any:
    """Return a NumPy array without its subclass, whose methods are the user's."""
    numpy = sys.modules["numpy"]
    return numpy.ndarray.view(block, numpy.ndarray)


def _read_array(block: Any) -> Any:
    if _is_numpy(type(block)):
        return _plain(block).copy()
    return block[ALL]


def _same_arrays(now: Any, before: Any) -> bool:
    """Return whether arrays have equal bytes, which are addresses in an array of objects."""
    if not _is_numpy(type(before)):
        return bool(now == before)
    return bool(now.shape == before.shape and now.dtype == before.dtype and now.tobytes() == before.tobytes())


def _write_array(block: Any, copy: Any) -> None:
    if not _is_numpy(type(block)):
        block[ALL] = copy
        return
    numpy = sys.modules["numpy"]
    if numpy.ndarray.shape.__get__(block) != copy.shape:
        numpy.ndarray.resize(block, copy.shape, refcheck=False)
    numpy.copyto(_plain(block), copy)


def _objects_in(copy: Any) -> list[Any]:
    if _is_numpy(type(copy)) and copy.dtype.hasobject:
        objects: list[Any] = copy.ravel().tolist()
        return objects
    return []


ARRAY = Keeper(_read_array, _write_array, _same_arrays, _objects_in)
"""The content of an array."""
