"""Which tool wrote a file, and the record of what is in it."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

from devwidget.opening.flight_recorder import is_dump, read_dumps
from devwidget.opening.kineto import read_kineto
from devwidget.opening.memory_snapshot import read_memory_snapshot
from devwidget.opening.plain_pickle import load_plain, uncollected
from devwidget.records.errors import UnreadableError
from devwidget.records.loading import json_io
from devwidget.records.schema.message import Message

_PICKLE, _GZIP = b"\x80", b"\x1f\x8b"
_OURS = b'"devwidget"'


@uncollected()
def open_file(path: str | pathlib.Path) -> Any:
    """A saved record, or what another tool wrote as one: of a folder, the flight-recorder dumps in it as one cluster.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is none of these.
    """
    file = pathlib.Path(path)
    if file.is_dir():
        return _folder(file)
    with file.open("rb") as opened:
        begins = opened.read(64)
    if begins.startswith(_PICKLE):
        content = load_plain(file)
        return read_dumps({file.name: content}) if is_dump(content) else read_memory_snapshot(content, file.stat().st_size)
    if _OURS in begins:
        return json_io.load(file)
    return _of_another(file, file.read_bytes(), begins.startswith(_GZIP))


def _folder(folder: pathlib.Path) -> Any:
    contents = {file.name: content for file in sorted(folder.iterdir()) if is_dump(content := _content(file))}
    if not contents:
        raise UnreadableError(Message("no flight-recorder dump in the folder {folder}", folder=folder.name))
    return read_dumps(contents)


def _content(file: pathlib.Path) -> Any:
    """What may be a dump; None for everything else that a folder may hold."""
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        begins = opened.read(1)
    try:
        return load_plain(file) if begins == _PICKLE else json.loads(file.read_bytes()) if begins == b"{" else None
    except ValueError:
        return None


def _of_another(file: pathlib.Path, written: bytes, zipped: bool) -> Any:
    try:
        content = json.loads(gzip.decompress(written) if zipped else written)
    except (ValueError, RecursionError, EOFError, gzip.BadGzipFile):
        content = None
    if is_dump(content):
        return read_dumps({file.name: content})
    if isinstance(content, dict) and "traceEvents" in content:
        return read_kineto(content)
    return json_io.load(file)  # which says what is wrong with it
