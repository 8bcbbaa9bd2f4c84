"""The parts of a report as lines of text."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

from devwidget.language.speaking import is_wide, say
from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.words import align_columns

MOST_COLUMNS = 120
_MOST_ROWS = 20


def line_table(title: str, rows: Sequence[Sequence[str]], right: Collection[int]) -> Table:
    """A table of lines of a program, as wide as a terminal."""
    return Table(rows, right, title, has_heading=False, most=_MOST_ROWS, widest=MOST_COLUMNS)


def draw_lines(parts: Iterable[Part]) -> Iterator[str]:
    """The lines."""
    for part in parts:
        match part:
            case Sentence(on="" | "text"):
                yield part.text
            case Table(on="" | "text"):
                yield from _draw_table(part)


def _draw_table(table: Table) -> Iterator[str]:
    rows = table.rows_for("text")
    shown = rows[: table.most or len(rows)]
    if table.title:
        facts = {"title": table.title, "shown": len(shown), "count": len(rows)}
        yield table.title if len(shown) == len(rows) else say("{title}: {shown} of {count}", **facts)
    yield from align_columns(shown, right=table.right, indent="  ", widest=table.widest)


def cut_line(text: str, columns: int) -> str:
    """As much of a line as goes into so many columns of a terminal."""
    ends = itertools.accumulate(1 + is_wide(letter) for letter in text)
    return "".join(letter for letter, end in zip(text, ends, strict=True) if end <= columns)
