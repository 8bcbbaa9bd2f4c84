"""Placing: the edits of a trial put where they belong, whatever kind of line each of them changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from devwidget.records.finding import Edit
from devwidget.trying import reached
from devwidget.trying.edited_file import EditedFile, edited
from devwidget.trying.functions import in_place, live_functions, with_new_code
from devwidget.trying.subjects import Subjects


@contextlib.contextmanager
def placed(edits: Collection[Edit], subjects: Subjects) -> Iterator[tuple[Subjects, Callable[[], bool]]]:
    """Run the block with some edits; yields what the step is given now, and whether every edit has run so far.

    Raises:
        NotTried: if they cannot be put in place.
    """
    numbers = {edit: number for number, edit in enumerate(edits)}
    functions = live_functions({edit.file for edit in edits})
    pairs, files = [], list[EditedFile]()
    for file, live in functions.items():
        mine = [edit for edit in numbers if edit.file == file]
        flags = live[0].__code__.co_flags if live else 0
        files.append(edited(file, mine, [numbers[edit] for edit in mine], flags))
        pairs += with_new_code(files[-1], live)
    reached.clear()
    with in_place(pairs):
        yield subjects, lambda: reached.seen() >= set(numbers.values())
