"""Read a unified diff, and find its lines in the files and cells that the program has loaded.

Assistants often miscount, so line numbers only decide between equal places.
"""

from __future__ import annotations

import difflib
import linecache
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from devwidget.capture.source_code.stack import is_library
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit
from devwidget.records.schema.message import Message
from devwidget.records.site import cell_label, cells, file_label

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@|@@")
_CELL = re.compile(r"(?:In|[Cc]ell)\s*\[?(\d+)\]?")
_HEADERS = ("--- ", "diff ", "index ")
EXAMPLE = "@@ -12,1 +12,1 @@\n-        y = x + self.shift\n+        y = x + self.shift.to(x.device)"


@dataclass(slots=True)
class Hunk:
    """Lines that follow each other, before and after.

    Attributes:
        file: name in the diff, "" without one.
        first: number of its first line in the diff, 0 without one.
        old: lines before, with context.
        new: lines after, with context.
    """

    file: str
    first: int = 0
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    def add_line(self, mark: str, text: str) -> None:
        """Add a line of the diff; some editors strip the mark of an empty one."""
        if mark in ("-", " ", ""):
            self.old.append(text)
        if mark in ("+", " ", ""):
            self.new.append(text)


def read_diff(diff: str, near: Iterable[str] = ()) -> tuple[Edit, ...]:
    """Return the edits of a unified diff.

    Args:
        diff: hunks begin with `@@`; names of files and line numbers may be missing.
        near: files of the functions that the step calls, which are searched first.

    Raises:
        DevwidgetError: if the text has no changed lines, or a file has not the old ones.
    """
    hunks = [each for each in _read_hunks(diff.strip("\n")) if each.old != each.new]
    if not hunks:
        raise DevwidgetError(Message("the text has no lines of a unified diff that change something"), instead=EXAMPLE)
    known = list(dict.fromkeys([*near, *reversed(cells()), *_loaded_files()]))
    return tuple(edit for hunk in hunks for edit in _find_edits(hunk, known))


def _read_hunks(diff: str) -> list[Hunk]:
    name = ""
    found: list[Hunk] = []
    is_open = False
    for line in diff.splitlines():
        head = _HUNK.match(line)
        if line.startswith("+++ "):
            name = re.sub(r"^[ab]/", "", line[4:].partition("\t")[0].strip())
        elif line.startswith(_HEADERS):
            is_open = False
        elif head is not None:
            found.append(Hunk(name, int(head[1] or 0)))
            is_open = True
        elif is_open or line[:1] in ("-", "+"):
            if not is_open:
                found.append(Hunk(name))
                is_open = True
            found[-1].add_line(line[:1], line[1:].rstrip())
    return found


def _find_edits(hunk: Hunk, known: Sequence[str]) -> Iterator[Edit]:
    """Yield the edits of a hunk in the first file that has its old lines.

    Raises:
        DevwidgetError: if no file has them.
    """
    named = [file for file in known if _is_called(file, hunk.file)]
    files = named or known
    for file in files:
        rows = [row.rstrip() for row in linecache.getlines(file)]
        places = [at for at in range(len(rows) - len(hunk.old) + 1) if rows[at : at + len(hunk.old)] == hunk.old]
        if not hunk.old:
            places = []
            if named and 0 <= hunk.first <= len(rows):
                places = [hunk.first]
        if len(places) > 1 and not hunk.first:
            facts = {"count": len(places), "file": file_label(file)}
            why = Message("its lines are in {file} at {count} places", **facts)
            raise DevwidgetError(Message("the diff does not say where it belongs"), why=why, instead=EXAMPLE)
        if places:
            yield from _list_edits(hunk, file, min(places, key=lambda each: abs(each + 1 - hunk.first)))
            return
    raise _find_no_place(hunk, files)


def _list_edits(hunk: Hunk, file: str, at: int) -> Iterator[Edit]:
    rows = [row.rstrip("\r\n") for row in linecache.getlines(file)]
    matcher = difflib.SequenceMatcher(None, hunk.old, hunk.new, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            was = "\n".join(rows[at + first : at + last])
            yield Edit(file, at + first + 1, at + last, "\n".join(hunk.new[new_first:new_last]), was)


def _is_called(file: str, name: str) -> bool:
    """Return whether a diff means this file or cell."""
    cell = _CELL.fullmatch(name)
    if cell is not None:
        label = _CELL.fullmatch(cell_label(file))
        return label is not None and label[1] == cell[1]
    path = file.replace(os.sep, "/")
    return bool(name) and not cell_label(file) and f"/{path}".endswith(f"/{name.lstrip('./')}")


def _find_no_place(hunk: Hunk, files: Sequence[str]) -> DevwidgetError:
    """Make the error for lines that no file has, with the nearest line there is."""
    rows_of = {file: [row.rstrip() for row in linecache.getlines(file)] for file in files}
    known = {row for rows in rows_of.values() for row in rows}
    missing = [line for line in hunk.old if line not in known]
    if not missing:
        return DevwidgetError(
            Message("no loaded file or cell has the old lines of the diff next to each other"), instead=EXAMPLE
        )
    wanted = missing[0]
    what = Message("no loaded file or cell has the line `{line}`", line=wanted.strip())
    for file, rows in rows_of.items():
        nearest = difflib.get_close_matches(wanted, rows, n=1)
        if nearest:
            facts = {"line": rows.index(nearest[0]) + 1, "file": file_label(file), "text": nearest[0].strip()}
            return DevwidgetError(what, why=Message("line {line} of {file} is `{text}`", **facts), instead=EXAMPLE)
    return DevwidgetError(what, instead=EXAMPLE)


def _loaded_files() -> Iterator[str]:
    """Yield the files of the user's modules, as their functions name them."""
    for module in list(sys.modules.values()):
        if type(module) is not ModuleType:
            continue
        file = vars(module).get("__file__")
        if type(file) is str and not is_library(file):
            yield file
