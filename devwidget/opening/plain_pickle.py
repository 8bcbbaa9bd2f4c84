"""Pickles of plain values alone: lists, dicts, texts and numbers. Whoever names a class is refused, and nothing is imported."""

from __future__ import annotations

import contextlib
import gc
import io
import pickle
from collections.abc import Iterator
from typing import Any, NoReturn

from devwidget.opening.pickle_scan import scan
from devwidget.records.errors import UnreadableError, error_text, message
from devwidget.records.schema.message import Message


class Refused(Exception):
    """A pickle that wants more than plain values."""


class _Plain(pickle.Unpickler):
    """Every object that is no plain value begins with the name of a class or a function."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise Refused(f"it asks for {module_name[:80]}.{global_name[:80]}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise Refused("it asks for an object outside of the file")


def load_plain(written: bytes) -> Any:
    """The value in a pickle.

    Raises:
        UnreadableError: if it is no pickle, holds more than plain values, or claims more than it has.
    """
    try:
        scan(written)
        return _Plain(io.BytesIO(written)).load()
    except Exception as error:  # a broken pickle raises anything, as the documentation of `pickle` says
        said = error_text(error) if isinstance(error, MemoryError) else message(error)
        raise UnreadableError(Message("not a pickle of plain values: {error}", error=said)) from None


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: each pass would walk through the millions of objects of a large file."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
