"""Read path arguments, and refuse invalid ones with a valid example."""

from __future__ import annotations

import os
import pathlib

from devwidget.records.schema.message import Message
from devwidget.records.schema.misuse import ArgumentError, MissingFileError, UnwritableError, nearest


def as_path(path: object, example: str) -> pathlib.Path:
    """Return the path of a text or a path.

    Raises:
        ArgumentError: if it is neither; `example` is a valid call.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(
            Message("the path is a `{kind}`, not a string or a path", kind=type(path).__name__), instead=example
        )
    return pathlib.Path(path)


def file_to_read(path: object, example: str) -> pathlib.Path:
    """Return the path of an existing file.

    Raises:
        MissingFileError: if it does not exist.
    """
    file = as_path(path, example)
    if not file.exists():
        if file.parent.is_dir():
            beside = [each.name for each in file.parent.iterdir()]
        else:
            beside = []
        what = Message("there is no file {path}{hint}", path=repr(str(file)), hint=nearest(file.name, beside))
        raise MissingFileError(what, why=Message("paths are relative to {folder}", folder=os.getcwd()), instead=example)
    return file


def write_text(path: object, text: str, example: str) -> pathlib.Path:
    """Write a file, as UTF-8.

    Returns:
        Its path.

    Raises:
        UnwritableError: if the folder does not exist, the path is a folder, or it is not writable.
    """
    file = as_path(path, example)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        what = Message("{path} cannot be written: {problem}", path=repr(str(file)), problem=error.strerror or str(error))
        raise UnwritableError(what, instead=_instead_of(file, example)) from error
    return file


def _instead_of(file: pathlib.Path, example: str) -> str:
    if not file.parent.is_dir():
        return Message("create the folder first: `pathlib.Path({folder}).mkdir(parents=True)`", folder=repr(str(file.parent)))
    return example
