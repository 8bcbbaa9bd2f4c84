"""Reading a file that may be anything by now: a pipe that nobody writes to, a device without an end, one that grows."""

from __future__ import annotations

import os
import pathlib
import stat

from devwidget.records.errors import UnreadableError
from devwidget.records.schema.message import Message

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def read_regular(path: str | os.PathLike[str], most: int, *, first: int | None = None) -> bytes:
    """What is in a file, as long as it was when it was opened; nothing waits for it.

    Args:
        path: a link is followed.
        most: bytes that it may have.
        first: read no more than so many.

    Raises:
        UnreadableError: if it is no regular file, or has more bytes.
        OSError: if it cannot be opened.
    """
    _size(os.stat(path), path, most)  # to open a device may do something, and to open a socket fails with a riddle
    opened = os.open(path, _FLAGS)
    try:
        size = _size(os.fstat(opened), path, most)
    except BaseException:
        os.close(opened)
        raise
    with os.fdopen(opened, "rb") as file:
        return file.read(size if first is None else min(size, first))


def _size(found: os.stat_result, path: str | os.PathLike[str], most: int) -> int:
    name = pathlib.Path(path).name
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableError(Message("{name} is no regular file", name=name))
    if found.st_size > most:
        size = f"{found.st_size:,}"
        raise UnreadableError(Message("{name} has {size} bytes, more than any has", name=name, size=size))
    return found.st_size
