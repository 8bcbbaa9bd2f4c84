"""Apply a fix to the user's source: edits for cells, which the page writes, files, and live functions."""

from __future__ import annotations

import ast
import difflib
import linecache
import pathlib
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Literal

from devwidget.fix_writer import edits_of_fixes, refuse_edits, write_edits
from devwidget.panel.actions import CellEdit
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, Fix, apply_edits
from devwidget.records.schema.message import Message
from devwidget.records.site import cell_label, find_shell, has_page, is_in_jupyter
from devwidget.report.report_parts import Code, Part
from devwidget.report.style.words import site_words
from devwidget.report.text.finding_text import changed_lines
from devwidget.trying.edited_code import CodeSwap, Pair, locate_edit, runs_in_constructor
from devwidget.trying.installed_edits import find_functions

When = Literal["restart", "build", "below", "cell", "now"]
_ORDER: tuple[When, ...] = ("restart", "build", "below", "cell", "now")
_cells_since: dict[tuple[str, int], str] = {}
"""The text of cells that were edited since they ran, as the page has it, by file name and number of the run."""


class Application:
    """One fix to apply. The page writes cells; this class writes files and updates live functions.

    Args:
        fix: The fix.
        name: Notebook variable that refers to the model, "" if none does.

    Attributes:
        fix: The fix.
        cells: Edits that the page writes, one for each cell.
        files: Names of the files that are written here.
        works: `now` if the changed functions run at each step; `cell` if you must re-run the cell, `below` if you must also
            re-run the cells below it; `build` if you must build objects of a file again, `restart` if Python must read the
            file again.

    Raises:
        DevwidgetError: If the fix has no edits, a file cannot be written, or a cell has changed.
    """

    def __init__(self, fix: Fix, name: str = "") -> None:
        if not fix.edits:
            raise DevwidgetError(Message("this fix has no edit"), instead=Message("use a fix that has `edits`"))
        self.fix = fix
        self._edits = edits_of_fixes([fix])
        refuse_edits(self._edits)
        self.files = tuple(file for file in self._edits if not cell_label(file))
        by_cell = {file: _edit_cell(file, edits) for file, edits in self._edits.items() if cell_label(file)}
        self.cells = tuple(by_cell.values())
        self._cells_before = {(file, cell.number): cell.raw for file, cell in by_cell.items()}
        self._cells_after = {(file, cell.number): _text_after(cell) for file, cell in by_cell.items()}
        self.works: When = min((_when_it_works(*each, name) for each in self._edits.items()), key=_ORDER.index)
        self._lines: dict[str, list[str]] = {}  # before, of files and cells whose functions have other code now
        self._written: list[tuple[pathlib.Path, pathlib.Path, bytes]] = []
        self._functions: list[tuple[weakref.ref[FunctionType], CodeType, CodeType]] = []

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of the cells once they are written."""
        return tuple(self._cells_after.values())

    def take_effect(self) -> None:
        """Write the files, once the page has written the cells, and update the code of live functions.

        Raises:
            DevwidgetError: If a file has changed in the meantime.
        """
        if self.works in ("now", "build"):
            live = find_functions(set(self._edits)).by_file
        else:
            live = {}
        before = {file: [line.rstrip("\r\n") for line in linecache.getlines(file)] for file in self._edits}
        after = {file: apply_edits(before[file], edits) for file, edits in self._edits.items()}
        pairs: list[Pair] = []
        for file, functions in live.items():
            trees = [ast.parse("\n".join(rows)) for rows in (before[file], after[file])]
            pairs += CodeSwap(file, *trees).find_pairs(functions)
        for file in self.files:
            backup = write_edits(file, self._edits[file])
            self._written.append((pathlib.Path(file), backup, pathlib.Path(file).read_bytes()))
        _cells_since.update(self._cells_after)
        if pairs:
            self._replace_code(pairs)
            self._lines = before
            _note_lines(after)
        elif self.works in ("now", "build"):
            self.works = "below" if self.cells else "restart"

    def take_back(self) -> None:
        """Undo the fix, once the page has undone it in its cells.

        Raises:
            DevwidgetError: If a file has changed since.
        """
        for path, backup, written in self._written:
            if path.read_bytes() != written:
                raise DevwidgetError(Message("{file} was changed after the trace", file=str(path)), instead=str(backup))
        for path, backup, _ in self._written:
            backup.replace(path)
        _cells_since.update(self._cells_before)
        _note_lines(self._lines)
        for found, old, new in self._functions:
            function = found()
            if function is not None and function.__code__ is new:
                function.__code__ = old

    def _replace_code(self, pairs: Iterable[Pair]) -> None:
        for function, code in pairs:
            self._functions.append((weakref.ref(function), function.__code__, code))
            function.__code__ = code


def apply_in_page(edits: Sequence[Edit]) -> bool:
    """Show a card whose page writes edits into their cells, and says what came of it; False where no page can."""
    if not has_page() or not is_in_jupyter():
        return False
    from IPython.display import display

    from devwidget.panel.fix_card import FixCard

    def parts() -> list[Part]:
        return [Code(changed_lines(edit), site_words(edit.site)) for edit in edits]

    display(FixCard(parts, Fix("", edits=tuple(edits)), Application, writes=True))
    return True


def _when_it_works(file: str, edits: Iterable[Edit], name: str) -> When:
    tree = ast.parse("".join(linecache.getlines(file)))
    places = [locate_edit(tree, edit.first, max(edit.first, edit.last)) for edit in edits]
    functions = [place.function for place in places if place.function is not None]
    is_in_functions = len(functions) == len(places)
    is_constructor = any(each.name == "__init__" for each in functions) or any(map(runs_in_constructor, places))
    if is_in_functions and not is_constructor:
        return "now"
    if not cell_label(file):
        return "build" if is_in_functions else "restart"
    is_top = all(place.function is None and place.owner is None for place in places)
    return "cell" if is_top or _binds(tree, name) else "below"


def _binds(tree: ast.AST, name: str) -> bool:
    """Return whether top-level statements bind a name: running them builds the model again."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue
            case ast.Name(id=found, ctx=ast.Store()) if found == name:
                return True
        if _binds(node, name):
            return True
    return False


def _note_lines(texts: Mapping[str, Sequence[str]]) -> None:
    """Update the caches of source lines that tracebacks and traces read."""
    for file, lines in texts.items():
        text = "\n".join(lines) + "\n"
        if cell_label(file):
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        else:
            linecache.checkcache(file)


def _edit_cell(file: str, edits: Iterable[Edit]) -> CellEdit:
    """Return the edit for the page: from the first changed line to the last, with a neighbour if it would be empty."""
    number, raw = _find_cell(file)
    rows, ran = raw.split("\n"), [line.rstrip("\n") for line in linecache.getlines(file)]
    moved = [_move_to_raw(edit, rows, ran) for edit in edits]
    changed = apply_edits(rows, moved)
    first = max(1, min(edit.first for edit in moved) - 1)
    behind = len(rows) - min(len(rows), max(edit.last for edit in moved) + 1)
    return CellEdit(number, raw, first, rows[first - 1 : len(rows) - behind], changed[first - 1 : len(changed) - behind])


def _text_after(cell: CellEdit) -> str:
    rows = cell.raw.split("\n")
    rows[cell.first - 1 : cell.first - 1 + len(cell.old)] = cell.new
    return "\n".join(rows)


def _find_cell(file: str) -> tuple[int, str]:
    """Return the number of a cell's last run, and its text in the page.

    Raises:
        DevwidgetError: If the cell was not run in this session.
    """
    shell = find_shell()
    if shell is not None:
        ran = list(shell.history_manager.input_hist_raw)
    else:
        ran = []
    for number in range(len(ran) - 1, 0, -1):
        if shell.compile.get_code_name(ran[number], ran[number], number) == file:
            return number, _cells_since.get((file, number), ran[number])
    raise DevwidgetError(Message("the cell was not run in this session"), instead=Message("run it again, then trace"))


def _move_to_raw(edit: Edit, raw: Sequence[str], ran: Sequence[str]) -> Edit:
    """Translate an edit of compiled code to the lines of the cell; IPython removes blank lines and rewrites magics.

    Raises:
        DevwidgetError: If its lines are not in the cell.
    """
    at, count = edit.first - 1, edit.last - edit.first + 1
    for a, b, size in difflib.SequenceMatcher(None, ran, raw, autojunk=False).get_matching_blocks():
        if (a <= at and at + max(count, 1) <= a + size) or (not count and at == a + size > 0):
            return Edit(edit.file, edit.first + b - a, edit.last + b - a, edit.text, edit.was)
    raise DevwidgetError(
        Message("line {first} of {file} has changed", first=edit.first, file=cell_label(edit.file)),
        instead=Message("run its cell and the cells below it again"),
    )
