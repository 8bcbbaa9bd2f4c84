r"""Texts made safe for a terminal: what is not seen, or changes what is seen, as its escape: `\x1b`, `\n`, `\u202e`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from devwidget.records.schema.message import Message, changed

_BREAKS = frozenset("\n\t")


class Lines(str):
    """Several lines on purpose, each of which is safe."""

    __slots__ = ()

    @classmethod
    def of(cls, lines: Iterable[str], between: str = "\n") -> Lines:
        """Safe lines, with what stands between them."""
        return cls(between.join(map(one_line, lines)))


def one_line(text: str) -> str:
    """For one line: no name in it can end the line, nor colour what follows."""
    if text.isprintable() or isinstance(text, Lines):
        return text
    return "".join(_shown(letter) for letter in text.replace("\t", "    "))


def block(text: str) -> str:
    """As `one_line`, with line breaks and tabs left as they are."""
    if text.isprintable():
        return text
    return "".join(letter if letter in _BREAKS else _shown(letter) for letter in text)


def sentence(text: str) -> str:
    """A text of a record or an error, as one line where it was made of others: only a template of ours has line breaks."""
    return text if text.isprintable() else changed(text, one_line)


def paragraph(text: str) -> str:
    """The same, where a text that is no message may have several lines."""
    return sentence(text) if isinstance(text, Message) else block(text)


def _shown(letter: str) -> str:
    """A letter, if it is seen as itself; else its escape. Spaces of all widths, and letters of private fonts, are."""
    if letter.isprintable() or unicodedata.category(letter) in ("Zs", "Co"):
        return letter
    return letter.encode("unicode_escape").decode("ascii")
