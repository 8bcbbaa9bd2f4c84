"""Applying: the edits of fixes written into the user's files, with a backup, or given back as the text of a cell."""

from __future__ import annotations

import itertools
import linecache
import pathlib
import shutil
from collections.abc import Iterable

from devwidget.capture.source_code.call_sites import is_library
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, Finding, applied


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
    lines, edits = [line.rstrip("\n") for line in linecache.getlines(file)], list(edits)
    stale = next((edit for edit in edits if not edit.fits(lines)), None)
    if stale is not None:
        raise DevwidgetError(f"line {stale.first} of {file} is not what it was", instead="trace again, then apply")
    if any(one.meets(other) for one, other in itertools.combinations(edits, 2)):
        raise DevwidgetError(f"two fixes want one line of {file}", instead="apply one, then trace again")
    return "\n".join(applied(lines, edits)) + "\n"


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
