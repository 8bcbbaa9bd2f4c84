"""The parts of a report as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devwidget.report.parts import Part, Schedule, Sentence, Table
from devwidget.report.style.words import align_columns


def draw_lines(parts: Iterable[Part]) -> Iterator[str]:
    """The lines; bars and their legend are for pages."""
    for part in parts:
        match part:
            case Sentence(on="" | "text"):
                yield part.text
            case Table(on="" | "text"):
                yield from _draw_table(part)
            case Schedule():
                yield from align_columns([(name, *cells) for name, cells in _fill_rows(part)], indent="  ")


def _draw_table(table: Table) -> Iterator[str]:
    if table.title:
        yield table.title
    yield from align_columns(table.rows_for("text"), right=table.right, indent="  ")


def _fill_rows(schedule: Schedule) -> Iterator[tuple[str, list[str]]]:
    """A dot for each unit in which nothing is done, dashes while something goes on."""
    widest = max((len(slot.text) for _, slots in schedule.rows for slot in slots), default=1)
    for name, slots in schedule.rows:
        cells = ["."] * schedule.width
        for slot in slots:
            cells[slot.start : slot.start + slot.width] = [slot.text, *["-"] * (slot.width - 1)]
        yield name, [cell.ljust(widest) for cell in cells]
