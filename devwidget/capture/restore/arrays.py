"""Memory of Python and NumPy that is no tensor: copied up to a bound, of what is beyond some values are compared."""

from __future__ import annotations

import array
import operator
import sys
from typing import Any

from devwidget.capture.restore.containers import ALL
from devwidget.capture.restore.keepers import Entries, Keeper

MOST_BYTES = 16 << 20
"""Copied of all arrays of NumPy together."""
_SAMPLES = 256


def is_array(kind: type) -> bool:
    """Whether instances of a class are arrays."""
    return kind is bytearray or kind is array.array or is_numpy(kind)


def is_numpy(kind: type) -> bool:
    """Whether instances of a class are arrays of NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


class ArrayBudget:
    """Chooses how each array is kept, as long as there is room for copies."""

    def __init__(self) -> None:
        self._left_bytes = MOST_BYTES

    def choose_keeper(self, block: Any) -> Keeper:
        """Of an array that cannot be written, only what it is a view of is looked at."""
        if not is_numpy(type(block)):
            return _BYTES
        if not _plain(block).flags.writeable:
            return _READ_ONLY
        if _plain(block).nbytes > self._left_bytes:
            return _SAMPLED
        self._left_bytes -= _plain(block).nbytes
        return _ARRAY


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


def _objects_in(copy: Any) -> Entries:
    if copy.dtype.hasobject:
        return enumerate(copy.ravel().tolist())
    return ()


def _read_samples(block: Any) -> tuple[Any, bytes]:
    """Shape and values at equal distances."""
    plain = _plain(block)
    return plain.shape, plain.flat[:: plain.size // _SAMPLES + 1].tobytes()


def _base_of(block: Any) -> Any:
    return sys.modules["numpy"].ndarray.base.__get__(block)


_ARRAY = Keeper(lambda block: _plain(block).copy(), _write_array, _same_arrays, _objects_in)
_READ_ONLY = Keeper(_base_of, entries=lambda base: (("base", base),))
_BYTES = Keeper(lambda block: block[ALL], lambda block, copy: block.__setitem__(ALL, copy), operator.eq)
_SAMPLED = Keeper(_read_samples, same=operator.eq)
