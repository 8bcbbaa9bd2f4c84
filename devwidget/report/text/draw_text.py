"""The parts of a report as lines of text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from devwidget.language.speaking import say
from devwidget.report.report_parts import Code, Fold, Heading, Part, Sentence, Table
from devwidget.report.style.words import align_columns, label_line

MOST_COLUMNS = 120
MOST_ROWS = 20


def line_table(title: str, rows: Sequence[Sequence[str]], right: Collection[int], most: int = MOST_ROWS) -> Table:
    """The first lines of a program, as wide as a terminal, below a title that tells how many there are."""
    if len(rows) > most:
        title = say("{title}: {shown} of {count}", title=title, shown=most, count=len(rows))
    return Table(rows[:most], right, title, has_heading=False, widest=MOST_COLUMNS)


def draw_lines(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the lines, with an empty line before each block."""
    is_first = True
    for part in parts:
        if part.on == "page":
            continue
        if isinstance(part, Heading | Fold) and not is_first:
            yield ""
        yield from _draw_part(part)
        is_first = False


def _draw_part(part: Part) -> Iterator[str]:
    match part:
        case Sentence(label=""):
            yield part.text
        case Sentence():
            yield label_line(part.label, part.text)
        case Heading():
            yield part.text
        case Code():
            if part.place:
                yield f"         {part.place}"
            for line in part.lines:
                yield f"           {line}".rstrip()
        case Table():
            if part.title:
                yield part.title
            yield from align_columns(part.rows, right=part.right, indent=part.indent, widest=part.widest)
        case Fold():
            yield from draw_lines(part.parts)
