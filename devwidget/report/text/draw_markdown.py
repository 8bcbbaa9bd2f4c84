"""The parts of a report as Markdown, to be pasted into an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.safe_text import safe_text

_MARKS = re.compile(r"([\\|<>*_])")


def draw_markdown(parts: Iterable[Part]) -> str:
    """Sentences as paragraphs, the verdict in bold, tables as tables."""
    return "\n\n".join(_draw_part(part) for part in parts if part.on != "page") + "\n"


def _draw_part(part: Part) -> str:
    match part:
        case Sentence(look="verdict"):
            return f"**{_escape(part.text)}**"
        case Sentence():
            return _escape(part.text)
        case Table():
            return "\n".join(_draw_table(part))


def _draw_table(table: Table) -> Iterator[str]:
    rows = table.rows_for("text")
    if table.title:
        yield f"{_escape(table.title)}\n"
    if table.has_heading:
        head, body = (rows[0], rows[1:])
    else:
        head, body = ([""] * len(rows[0]), rows)
    yield _draw_row(head)
    yield _draw_row("---:" if at in table.right else "---" for at in range(len(head)))
    yield from map(_draw_row, ([_escape(cell) for cell in row] for row in body))


def _draw_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """As Markdown shows it: code between backticks stays code."""
    parts = safe_text(text).split("`")
    if len(parts) % 2 == 0:
        return _MARKS.sub(r"\\\1", safe_text(text))
    return "`".join(part.replace("|", r"\|") if at % 2 else _MARKS.sub(r"\\\1", part) for at, part in enumerate(parts))
