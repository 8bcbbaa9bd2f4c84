"""Open files of other tools as records. The extras recognise the tool by the content."""

from __future__ import annotations

import contextlib
import gc
import gzip
import io
import json
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

from devwidget import extras
from devwidget.records.errors import UnreadableError
from devwidget.records.loading import json_io
from devwidget.records.loading.json_io import read_regular
from devwidget.records.loading.typed_reader import Unexpected
from devwidget.records.loading.untrusted_files import load_plain
from devwidget.records.schema.message import Message

# A profile takes up to 30 times the bytes of its gzip; what is small may take more. A bomb takes 1,000 times its bytes.
MOST_UNZIPPED, SMALL = 64, 2**24
# Bytes; a memory snapshot of a million events takes 2**28.
LARGEST = 2**33
_PICKLE, _GZIP = b"\x80", b"\x1f\x8b"
_JSON = (b"{", b"[", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_OURS = b'"devwidget"'


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Pause garbage collection, which would visit the millions of objects of a large file again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@without_collection()
def open_file(path: str | pathlib.Path) -> Any:
    """Open a saved record, or a file of another tool as a record. For a folder, open its flight-recorder dumps together."""
    file = pathlib.Path(path)
    if file.is_dir():
        return _read_folder(file)
    begins = read_regular(file, LARGEST, first=64)
    if not begins.lstrip().startswith((_PICKLE, _GZIP, *_JSON)):
        raise UnreadableError(Message("its first bytes match no known file format"))
    if _OURS in begins:
        return json_io.load(file)  # which says what is wrong with it
    written = read_regular(file, LARGEST)
    if begins.startswith(_PICKLE):
        return _read_content(file, load_plain(written), len(written))
    content = _parse_json(_unzip_bounded(written) if begins.startswith(_GZIP) else written)
    if content is None:
        return json_io.load(file)
    return _read_content(file, content, len(written))


def _read_content(file: pathlib.Path, content: Any, size: int) -> Any:
    for module in extras.load_all("files"):
        found = module.read_content(file.name, content, size)
        if found is not None:
            return found
    if isinstance(content, dict):
        raise UnreadableError(Message("it was not written by a tool that devwidget knows"))
    return json_io.load(file)  # which says that it is none of ours


def _read_folder(folder: pathlib.Path) -> Any:
    for module in extras.load_all("folders"):
        found = module.read_folder(folder)
        if found is not None:
            return found
    raise UnreadableError(Message("nothing in the folder {folder} can be opened", folder=folder.name or folder))


def load_content(file: pathlib.Path) -> Any:
    """Load a pickle of plain values or JSON; return None for any other file."""
    try:
        written = read_regular(file, json_io.LARGEST_TEXT)
        if written.startswith(_PICKLE):
            return load_plain(written)
        if written.startswith(b"{"):
            return _parse_json(written)
        return None
    except (OSError, ValueError):
        return None


def _parse_json(written: bytes) -> Any:
    """Return parsed JSON; None for other text."""
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
        raise UnreadableError(Message("not a gzip file: {error}", error=error)) from None
    if len(content) > most:
        raise UnreadableError(Message("a gzip file that unpacks to more than {count} times its bytes", count=MOST_UNZIPPED))
    return content
