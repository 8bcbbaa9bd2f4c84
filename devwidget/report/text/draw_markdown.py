"""The parts of a report as Markdown, to be pasted into an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from devwidget.report.report_parts import Code, Fold, Heading, Part, Sentence, Table
from devwidget.report.style.safe_text import safe_text

_MARKS = re.compile(r"([\\|<>*_])")


def draw_markdown(parts: Iterable[Part]) -> str:
    """Sentences as paragraphs, headings and the verdict in bold, tables as tables, code in fences."""
    drawn = [_draw_part(part) for part in parts if part.on != "page"]
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
    lines = "\n".join(map(safe_text, code.lines))
    fence = "```"
    while fence in lines:
        fence += "`"
    if code.place:
        return f"{_escape(code.place)}\n\n{fence}diff\n{lines}\n{fence}"
    return f"{fence}python\n{lines}\n{fence}"


def _draw_table(table: Table) -> Iterator[str]:
    head, *body = table.rows
    if table.title:
        yield f"{_escape(table.title)}\n"
    if not table.has_heading:
        body.insert(0, head)
        head = [""] * len(head)
    yield _draw_row(head)
    marks = ["---"] * len(head)
    for at in table.right:
        marks[at] = "---:"
    yield _draw_row(marks)
    for row in body:
        yield _draw_row(map(_escape, row))


def _draw_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """As Markdown shows it: code between backticks stays code."""
    parts = safe_text(text).split("`")
    if len(parts) % 2 == 0:
        return _MARKS.sub(r"\\\1", safe_text(text))
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = part.replace("|", r"\|")
        else:
            parts[at] = _MARKS.sub(r"\\\1", part)
    return "`".join(parts)
