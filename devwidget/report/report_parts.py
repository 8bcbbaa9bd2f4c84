"""The parts of a report: built once from a record, drawn as text by `text/draw_text.py` and as HTML by `page/draw_page.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Screen = Literal["", "text", "page"]
"""The only screen that shows something, "" for both."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence on a line of its own; `verdict` is the answer, `over` what does not fit."""

    text: str
    look: Literal["", "verdict", "over"] = ""
    on: Screen = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in rows.

    Attributes:
        rows: of as many cells each; the first is the heading, if there is one.
        right: columns whose cells end at one place.
        title: what is said above; a page folds a table that has one.
        only: column -> the only screen that shows it.
        most: rows that a text shows of a table without heading, whose title then says of how many; 0 for all.
        widest: columns that a line of text may have; 0 for as many as it takes.
    """

    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    title: str = ""
    has_heading: bool = True
    look: Literal["", "compared"] = ""
    on: Screen = ""
    only: Mapping[int, Screen] = field(default_factory=dict)
    most: int = 0
    widest: int = 0

    def rows_for(self, screen: Screen) -> list[list[str]]:
        """The rows with the columns that a screen shows."""
        return [[cell for at, cell in enumerate(row) if self.only.get(at, screen) == screen] for row in self.rows]


Part = Sentence | Table
