"""Write the edits of fixes to the user's files with a backup, or return the new text of a cell."""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import pathlib
import shutil
import tokenize
from collections.abc import Iterable, Mapping, Sequence

from devwidget.capture.source_code.stack import is_library
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, Finding, Fix, splice_lines
from devwidget.records.schema.message import Message
from devwidget.records.site import cell_label

_last: tuple[Finding, ...] | None = None
"""Of the last trace or explanation, for `%devwidget fix`; records hold nothing alive. None before the first."""


def remember_findings(findings: tuple[Finding, ...]) -> None:
    """Keep the findings of a trace, recording or explanation."""
    global _last
    _last = findings


def edits_to_apply() -> dict[str, list[Edit]] | None:
    """Return the first fix of each finding of the last trace or explanation, by file.

    Without one, explains the last exception; None if there is none.
    """
    from devwidget import post_mortem

    if _last is None and post_mortem.last_error() is not None:
        remember_findings(post_mortem.explain(None).findings)
    if _last is None:
        return None
    return edits_by_file(_last)


def edits_by_file(findings: Iterable[Finding]) -> dict[str, list[Edit]]:
    """Return the edits of the first fix of each finding, each once, by file."""
    return edits_of_fixes(finding.fixes[0] for finding in findings if finding.fixes)


def edits_of_fixes(fixes: Iterable[Fix]) -> dict[str, list[Edit]]:
    """Return the edits of some fixes, each once, by file."""
    found: dict[str, list[Edit]] = {}
    for edit in (edit for fix in fixes for edit in fix.edits):
        if edit not in found.setdefault(edit.file, []):
            found[edit.file].append(edit)
    return found


def apply_to_text(file: str, edits: Iterable[Edit]) -> str:
    """Return the text of a file or cell after its edits.

    Raises:
        DevwidgetError: If the file has changed, or two edits change the same lines.
    """
    linecache.checkcache(file)
    return "".join(_edit_lines(file, linecache.getlines(file), list(edits)))


def write_edits(file: str, edits: Iterable[Edit]) -> pathlib.Path:
    """Write edits to a file.

    Encoding and line ends of the file are kept.

    Returns:
        The backup.

    Raises:
        DevwidgetError: For a file of an installed package, for a file that cannot be read, and as `apply_to_text`.
    """
    path, (old, new) = pathlib.Path(file), _rewrite_file(file, edits)
    backup = _backup_of(path, old)
    path.write_bytes(new)
    return backup


def refuse_edits(edits: Mapping[str, list[Edit]]) -> None:
    """Raise if a file cannot be written or a cell has changed, so that a fix is never applied partially.

    Raises:
        DevwidgetError: As `write_edits`.
    """
    for file, changes in edits.items():
        apply_to_text(file, changes) if cell_label(file) else _rewrite_file(file, changes)


def _rewrite_file(file: str, edits: Iterable[Edit]) -> tuple[bytes, bytes]:
    """Return the content of a file before and after its edits."""
    if is_library(file):
        raise DevwidgetError(
            Message("{file} belongs to an installed package", file=file), why=Message("devwidget writes only to your own files")
        )
    try:
        old = pathlib.Path(file).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(old).readline)
        lines = io.StringIO(old.decode(encoding), newline="").readlines()  # of any kind of line end, as Python's parser has it
        new = "".join(_edit_lines(file, lines, list(edits))).encode(encoding)
    except (OSError, SyntaxError, UnicodeError) as error:
        raise DevwidgetError(
            Message("{file} cannot be edited", file=file), why=str(error), instead=Message("write the fix by hand")
        ) from error
    return old, new


def _edit_lines(file: str, lines: Sequence[str], edits: Sequence[Edit]) -> list[str]:
    """Return lines with their ends after edits. A new line ends like the line that it replaces."""
    bare = [line.rstrip("\r\n") for line in lines]
    stale = next((edit for edit in edits if not edit.fits(bare)), None)
    if stale is not None:
        raise DevwidgetError(
            Message("line {first} of {file} has changed", first=stale.first, file=file),
            instead=Message("trace again, then apply"),
        )
    if any(one.meets(other) for one, other in itertools.combinations(edits, 2)):
        raise DevwidgetError(
            Message("two fixes change the same line of {file}", file=file), instead=Message("apply one, then trace again")
        )
    ends = [line[len(text) :] for line, text in zip(lines, bare, strict=True)]
    is_open = bool(ends) and not ends[-1]
    if is_open:
        ends[-1] = ends[0] or "\n"

    def end_lines(edit: Edit) -> list[str]:
        if ends:
            end = ends[min(edit.first, len(ends)) - 1]
        else:
            end = "\n"
        return [line + end for line in edit.new_lines]

    result = splice_lines(map(str.__add__, bare, ends), edits, end_lines)
    if is_open and result:
        result[-1] = result[-1].rstrip("\r\n")
    return result


def _backup_of(path: pathlib.Path, content: bytes) -> pathlib.Path:
    """Save the content next to the file. Older backups are kept."""
    for number in itertools.count(1):
        backup = path.with_name(f"{path.name}.before-fix{f'-{number}' if number > 1 else ''}")
        with contextlib.suppress(FileExistsError), open(backup, "xb") as file:
            file.write(content)
            shutil.copystat(path, backup)
            break
    return backup
