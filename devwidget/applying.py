"""Applying: the edits of fixes written into the user's files, with a backup, or given back as the text of a cell."""

from __future__ import annotations

import linecache
import pathlib
import shutil
from collections.abc import Iterable

from devwidget.capture.source_code.call_sites import is_library
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, Finding


def edits_of(findings: Iterable[Finding]) -> dict[str, list[Edit]]:
    """The edits of the first fix of every finding, each once, by file."""
    found: dict[str, list[Edit]] = {}
    for finding in findings:
        for edit in finding.fixes[0].edits if finding.fixes else ():
            if edit not in found.setdefault(edit.file, []):
                found[edit.file].append(edit)
    return found


def after(file: str, edits: Iterable[Edit]) -> str:
    """The text of a file, or of a cell, after its edits.

    Raises:
        DevwidgetError: if the file has changed since, or two edits want the same lines.
    """
    linecache.checkcache(file)
    lines, taken = [line.rstrip("\n") for line in linecache.getlines(file)], len(linecache.getlines(file)) + 1
    for edit in sorted(edits, key=lambda e: (e.first, e.last), reverse=True):
        if edit.last >= edit.first and "\n".join(lines[edit.first - 1 : edit.last]) != edit.was:
            raise DevwidgetError(f"line {edit.first} of {file} is not what it was", instead="trace again, then apply")
        if edit.last >= taken:
            raise DevwidgetError(f"two fixes want line {edit.last} of {file}", instead="apply one, then trace again")
        lines[edit.first - 1 : edit.last] = edit.text.split("\n") if edit.text else []
        taken = edit.first if edit.last >= edit.first else taken
    return "\n".join(lines) + "\n"


def write(file: str, edits: Iterable[Edit]) -> pathlib.Path:
    """Write the edits into a file; the backup that was made.

    Raises:
        DevwidgetError: for a file of an installed package, and for what `after` refuses.
    """
    if is_library(file):
        raise DevwidgetError(f"{file} belongs to an installed package", why="only files of your own are written")
    text, path = after(file, edits), pathlib.Path(file)
    backup = path.with_name(f"{path.name}.before-fix")
    shutil.copy2(path, backup)
    path.write_text(text, encoding="utf-8")
    return backup
