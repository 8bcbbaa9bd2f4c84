"""The parts of a report as Markdown, to be pasted into an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from devwidget.report.report_parts import Code, Fold, Heading, Part, Sentence, Table
from devwidget.report.style.safe_text import safe_text

_MARKS = re.compile(r"([\\|<>*_])")


def draw_markdown(parts: Iterable[Part]) -> str:
    """Sentences as paragraphs, headings and the verdict in bold, tables as tables, code in fences."""
    drawn = (_draw_part(part) for part in parts if part.on != "page")
    return "\n\n".join(filter(None, drawn)) + "\n"


def _draw_part(part: Part) -> str:
    match part:
        case Heading() | Sentence(look="verdict"):
            return f"**{_escape(part.text)}**"
        case Sentence(label=""):
            return _escape(part.text.strip())
        case Sentence():
            return f"{part.label}: {_escape(part.text)}"
        case Table():
            return "\n".join(_draw_table(part))
        case Code():
            return _draw_code(part)
        case Fold():
            return draw_markdown(part.parts).strip()


def _draw_code(code: Code) -> str:
    lines = [safe_text(line) for line in code.lines]
    fence = "```"
    while any(fence in line for line in lines):
        fence += "`"
    kind = "diff" if code.place else "python"
    drawn = "\n".join([fence + kind, *lines, fence])
    if code.place:
        return f"{_escape(code.place)}\n\n{drawn}"
    return drawn


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
    for row in body:
        yield _draw_row(map(_escape, row))


def _draw_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """As Markdown shows it: code between backticks stays code."""
    parts = safe_text(text).split("`")
    if len(parts) % 2 == 0:
        return _MARKS.sub(r"\\\1", safe_text(text))
    return "`".join(part.replace("|", r"\|") if at % 2 else _MARKS.sub(r"\\\1", part) for at, part in enumerate(parts))
