"""Rows of cells as lines of equal columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from devwidget.report.style.safe_text import columns_of, safe_text

_WIDEST = 60


def columns(rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = "") -> Iterator[str]:
    """Lines with two spaces between the columns; `right` names the columns that end at the same place.

    The last column is not padded, and every other cell is cut at 60 characters.
    """
    safe = [[safe_text(cell) for cell in row] for row in rows]
    cut = [[*(shorten(cell, _WIDEST) for cell in row[:-1]), row[-1]] for row in safe]
    widths = [max(columns_of(cell) for cell in column) for column in zip(*cut, strict=True)]
    for row in cut:
        cells = [
            " " * (width - columns_of(cell)) + cell if at in right else cell + " " * (width - columns_of(cell))
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield (indent + "  ".join(cells)).rstrip()


def shorten(text: str, most: int) -> str:
    """Text of at most `most` characters, its middle left out."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"
