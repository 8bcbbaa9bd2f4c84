"""Memory of Python and NumPy that is no tensor: copied up to a bound, of what is beyond some values are compared."""

from __future__ import annotations

import array
import sys
from typing import Any

from devwidget.capture.restore.containers import ALL
from devwidget.capture.restore.keepers import Keeper, always_same

MOST_BYTES = 16 << 20
"""Copied of all blocks together."""
_SAMPLES = 256


def is_numpy(kind: type) -> bool:
    """Whether instances of a class are arrays of NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def is_block(kind: type) -> bool:
    """Whether instances of a class are blocks."""
    return issubclass(kind, bytearray | array.array) or is_numpy(kind)


class Blocks:
    """Chooses how each block is kept, as long as there is room for copies."""

    def __init__(self) -> None:
        self._left_bytes = MOST_BYTES

    def choose_keeper(self, block: Any) -> Keeper:
        """Of an array that cannot be written, only what it is a view of is looked at."""
        kind = type(block)
        if is_numpy(kind) and not _plain(block).flags.writeable:
            return _READ_ONLY
        size = _plain(block).nbytes if is_numpy(kind) else memoryview(block).nbytes
        if size > self._left_bytes:
            return _SAMPLED
        self._left_bytes -= size
        if is_numpy(kind):
            return _ARRAY
        return _BYTES if issubclass(kind, bytearray) else _NUMBERS


def _plain(block: Any) -> Any:
    """A NumPy array without its subclass, whose methods are the user's."""
    numpy = sys.modules["numpy"]
    return numpy.ndarray.view(block, numpy.ndarray)


def _same_arrays(now: Any, before: Any) -> bool:
    """By their bytes, which are addresses of what is in an array of objects."""
    return bool(now.shape == before.shape and now.dtype == before.dtype and now.tobytes() == before.tobytes())


def _write_array(block: Any, copy: Any) -> None:
    numpy = sys.modules["numpy"]
    if numpy.ndarray.shape.__get__(block) != copy.shape:
        numpy.ndarray.resize(block, copy.shape, refcheck=False)
    if _plain(block).flags.writeable:  # what cannot be written has not been
        numpy.copyto(_plain(block), copy)


def _objects_in(copy: Any) -> list[Any]:
    return copy.ravel().tolist() if copy.dtype.hasobject else []


def _read_samples(block: Any) -> tuple[Any, bytes]:
    """Shape or length, and values at equal distances."""
    if not is_numpy(type(block)):
        view = memoryview(block)
        return len(view), view[:: len(view) // _SAMPLES + 1].tobytes()
    plain = _plain(block)
    return plain.shape, plain.flat[:: plain.size // _SAMPLES + 1].tobytes()


def _base_of(block: Any) -> Any:
    return sys.modules["numpy"].ndarray.base.__get__(block)


def _same_values(now: Any, before: Any) -> bool:
    return bool(now == before)


_ARRAY = Keeper(lambda block: _plain(block).copy(), _write_array, _same_arrays, _objects_in)
_READ_ONLY = Keeper(_base_of, None, always_same, lambda base: (base,))
_BYTES = Keeper(
    lambda block: bytearray.__getitem__(block, ALL),
    lambda block, copy: bytearray.__setitem__(block, ALL, copy),
    _same_values,
)
_NUMBERS = Keeper(
    lambda block: array.array.__getitem__(block, ALL),
    lambda block, copy: array.array.__setitem__(block, ALL, copy),
    lambda now, before: now.tobytes() == before.tobytes(),
)
_SAMPLED = Keeper(_read_samples, None, _same_values)
