"""Pickles of plain values alone: lists, dicts, texts and numbers. Whoever names a class is refused, and nothing is imported."""

from __future__ import annotations

import contextlib
import gc
import pathlib
import pickle
from collections.abc import Iterator
from typing import Any, NoReturn

from devwidget.records.errors import UnreadableError
from devwidget.records.schema.message import Message


class Refused(Exception):
    """A pickle that wants more than plain values."""


class _Plain(pickle.Unpickler):
    """Every object that is no plain value begins with the name of a class or a function."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise Refused(f"it asks for {module_name[:80]}.{global_name[:80]}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise Refused("it asks for an object outside of the file")


def load_plain(path: pathlib.Path) -> Any:
    """The value in a pickle.

    Raises:
        ValueError: if it is no pickle, or holds more than plain values.
    """
    with path.open("rb") as file:
        try:
            return _Plain(file).load()
        except Exception as error:  # a broken pickle raises anything, as the documentation of `pickle` says
            raise UnreadableError(Message("not a pickle of plain values: {error}", error=error)) from None


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
