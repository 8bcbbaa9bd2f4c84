"""Errors for misuse of devwidget: what happened, why, and what is right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from devwidget.records.schema.message import Message, escape_paragraph, in_language


class DevwidgetError(Exception):
    """Misuse of devwidget. Nothing has been changed when it is raised.

    Its text is in the language of reports; `args` are English.

    Attributes:
        what: the fact, lower case.
        why: the reason; "" if it is obvious.
        instead: what is right, code if possible.
    """

    def __init__(self, what: str, *, why: str = "", instead: str = "") -> None:
        self.what = escape_paragraph(what)
        self.why = escape_paragraph(why)
        self.instead = escape_paragraph(instead)
        super().__init__("\n".join(self._list_parts()))

    def __str__(self) -> str:
        return "\n".join(map(in_language, self._list_parts()))

    def _list_parts(self) -> Iterator[str]:
        yield self.what
        if self.why:
            yield Message("  why:  {why}", why=self.why)
        if self.instead:
            yield Message("  help: {instead}", instead=self.instead)


class MissingFileError(DevwidgetError, FileNotFoundError):
    """The file does not exist."""


class UnwritableError(DevwidgetError, OSError):
    """The file cannot be written."""


class ArgumentError(DevwidgetError, TypeError):
    """Unknown, missing or invalid argument."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the known word that is closest, or ""."""
    close = difflib.get_close_matches(word, list(known), n=1)
    if close:
        return Message("; did you mean {word}?", word=repr(close[0]))
    return ""
