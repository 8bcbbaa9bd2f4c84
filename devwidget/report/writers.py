"""Write records in formats of other programs, such as SARIF. Each is in an extra, and is looked up by name."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from devwidget import extras
from devwidget.records.schema.message import Message


@dataclass(frozen=True, slots=True)
class Writer:
    """How a record is written in one format.

    Attributes:
        purpose: who reads it, for the help of an option.
        write: the text of a record with findings; files are named from the folder that is given.
    """

    purpose: Message
    write: Callable[[Any, str | pathlib.Path], str]


def list_formats() -> list[str]:
    """Name the formats that there are."""
    return list(extras.offered("formats"))


def find_writer(name: str) -> Writer:
    """Find the writer of a format; raise DevwidgetError if no extra has it."""
    writer: Writer = extras.need_home("formats", name, name).WRITERS[name]
    return writer
