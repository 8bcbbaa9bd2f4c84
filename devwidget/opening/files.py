"""Which tool wrote a file, and the record of what is in it."""

from __future__ import annotations

import pathlib
from typing import Any

from devwidget.opening.memory_snapshot import read_memory_snapshot
from devwidget.records.loading import json_io

_PICKLE = b"\x80"


def open_file(path: str | pathlib.Path) -> Any:
    """A saved record, or a memory snapshot of torch as a trace.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is none of these.
    """
    file = pathlib.Path(path)
    with file.open("rb") as opened:
        is_pickle = opened.read(1) == _PICKLE
    return read_memory_snapshot(file) if is_pickle else json_io.load(file)
