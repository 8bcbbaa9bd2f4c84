"""FOREIGN FILES: what other tools wrote, as records; which tool wrote a file is told by its first bytes."""

from __future__ import annotations

import contextlib
import gc
import gzip
import io
import json
import pathlib
import re
import zlib
from collections.abc import Iterator
from typing import Any

from devwidget.extras.profiles.kineto import read_kineto
from devwidget.extras.profiles.memory_snapshot import read_memory_snapshot
from devwidget.extras.profiles.untrusted_files import load_plain
from devwidget.extras.ranks.flight_file import is_dump, read_dumps
from devwidget.extras.watch.records.job import WatchedJob
from devwidget.extras.watch.records.run import WatchedRun
from devwidget.records.errors import UnreadableError
from devwidget.records.loading import json_io
from devwidget.records.loading.json_io import read_regular
from devwidget.records.loading.typed_reader import Unexpected
from devwidget.records.schema.message import Message

# A profile takes up to 30 times the bytes of its gzip; what is small may take more. A bomb takes 1,000 times its bytes.
MOST_UNZIPPED, SMALL = 64, 2**24
# Bytes; a memory snapshot of a million events takes 2**28.
LARGEST = 2**33
_PICKLE, _GZIP = b"\x80", b"\x1f\x8b"
_JSON = (b"{", b"[", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_RUN_OF_RANK = re.compile(r"\.rank-(\d{1,7})\.jsonl$")
_OURS = b'"devwidget"'


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Pause garbage collection: each pass would walk through the millions of objects of a large file."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@without_collection()
def open_file(path: str | pathlib.Path) -> Any:
    """Open a saved record, or what another tool wrote as one; of a folder its flight-recorder dumps, or runs, together."""
    file = pathlib.Path(path)
    if file.is_dir():
        return _read_folder(file)
    begins = read_regular(file, LARGEST, first=64)
    if not begins.lstrip().startswith((_PICKLE, _GZIP, *_JSON)):
        raise UnreadableError(Message("it begins as no file does that can be opened"))
    if _OURS in begins:
        return json_io.load(file)  # which says what is wrong with it
    written = read_regular(file, LARGEST)
    if begins.startswith(_PICKLE):
        content = load_plain(written)
        return read_dumps({file.name: content}) if is_dump(content) else read_memory_snapshot(content, len(written))
    return _read_foreign_json(file, _unzip_bounded(written) if begins.startswith(_GZIP) else written)


def _read_folder(folder: pathlib.Path) -> Any:
    if runs := {int(named[1]): file for file in folder.iterdir() if (named := _RUN_OF_RANK.search(file.name))}:
        found = sorted(runs.items())
        return WatchedJob(tuple(rank for rank, _ in found), tuple(_load_run(file) for _, file in found))
    contents = {file.name: content for file in sorted(folder.iterdir()) if is_dump(content := _load_dump(file))}
    if not contents:
        raise UnreadableError(Message("no flight-recorder dump in the folder {folder}", folder=folder.name or folder))
    return read_dumps(contents)


def _load_run(file: pathlib.Path) -> WatchedRun:
    run = json_io.load(file)
    if not isinstance(run, WatchedRun):
        raise UnreadableError(Message("{name} is no watched run", name=file.name))
    return run


def _load_dump(file: pathlib.Path) -> Any:
    """Load what may be a dump; None for everything else that a folder may hold."""
    try:
        written = read_regular(file, json_io.LARGEST_TEXT)
        return (
            load_plain(written) if written.startswith(_PICKLE) else _parse_json(written) if written.startswith(b"{") else None
        )
    except (OSError, ValueError):
        return None


def _read_foreign_json(file: pathlib.Path, written: bytes) -> Any:
    content = _parse_json(written)
    if is_dump(content):
        return read_dumps({file.name: content})
    if isinstance(content, dict) and "traceEvents" in content:
        return read_kineto(content)
    return json_io.load(file)


def _parse_json(written: bytes) -> Any:
    """Return what JSON says; None for what is none."""
    try:
        json_io.refuse_brackets(written)
        return json.loads(written)
    except (Unexpected, ValueError, RecursionError, MemoryError):
        return None


def _unzip_bounded(written: bytes) -> bytes:
    most = max(SMALL, MOST_UNZIPPED * len(written))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(written)) as file:
            content = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(Message("no gzip file: {error}", error=error)) from None
    if len(content) > most:
        raise UnreadableError(Message("a gzip file that unpacks to more than {count} times its bytes", count=MOST_UNZIPPED))
    return content
