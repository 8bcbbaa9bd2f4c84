"""The parts of a report: built once from a record, drawn as text, as Markdown and as HTML, each by one file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Screen = Literal["", "text", "page"]
"""The only screen that shows something, "" for both."""


@dataclass(frozen=True, slots=True)
class Heading:
    """What begins a block of its own."""

    text: str
    on: Screen = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence on its own line. `verdict` marks the answer, `over` what does not fit; `label` precedes it."""

    text: str
    look: Literal["", "verdict", "over"] = ""
    on: Screen = ""
    label: str = ""


GAP = Sentence("")
"""An empty line of a text."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in rows.

    Attributes:
        rows: of as many cells each; the first is the heading, if there is one.
        right: columns whose cells end at one place.
        title: what is said above; a page folds a table that has one.
        widest: columns that a line of text may have; 0 for as many as it takes.
        indent: what a line of text begins with.
    """

    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    title: str = ""
    has_heading: bool = True
    on: Screen = ""
    widest: int = 0
    indent: str = "  "


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of a program, or of a diff, and their place."""

    lines: Sequence[str]
    place: str = ""
    on: Screen = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """Parts that a page folds below a title, which a text leaves out."""

    title: str
    parts: Sequence[Part]
    on: Screen = ""


Part = Heading | Sentence | Table | Code | Fold
