"""`fix apply`: the edits of a saved trace shown, and written into the files where they belong once that was agreed to."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping

from devwidget.cli.commands import FINE, FOUND, load_record
from devwidget.language.speaking import say
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Edit, Finding
from devwidget.records.schema.message import Message
from devwidget.records.site import cell_label
from devwidget.records.trace import Trace


def apply(options: Namespace) -> int:
    """Write the first edit of every finding, each file with a backup; nothing is written if one of them cannot be."""
    from devwidget import api

    edits = api.edits_of(_chosen(load_record(options.file, Trace).findings, options.kind))
    if not edits:
        print(say("no finding of {name} has an edit to write", name=options.file.name))
        return FINE
    _refuse_cells(edits)
    api.refuse_edits(edits)
    for changes in edits.values():
        print("\n".join(edit.diff() for edit in changes))
    if not options.yes and not _is_agreed(edits):
        print(say("nothing was written"))
        return FOUND
    for file, changes in edits.items():
        print(say("{file} is written, and {backup} has what it was", file=file, backup=api.write_edits(file, changes)))
    return FINE


def _chosen(findings: Iterable[Finding], kind: str | None) -> list[Finding]:
    """Those whose first fix is no mere choice among designs, which only the user can make; of one kind if asked."""
    return [
        finding
        for finding in findings
        if finding.fixes and finding.fixes[0].confidence != "choice" and kind in (None, finding.kind)
    ]


def _refuse_cells(edits: Mapping[str, list[Edit]]) -> None:
    cell = next(filter(None, map(cell_label, edits)), None)
    if cell:
        raise DevwidgetError(Message("{cell} is a cell of a notebook, not a file", cell=cell), instead="%devwidget fix apply")


def _is_agreed(edits: Mapping[str, list[Edit]]) -> bool:
    """The answer on the input stream; none there is a no."""
    print(say("write this into {files}? [y/N] ", files=", ".join(edits)), end="", flush=True)
    answer = sys.stdin.readline().strip().lower()
    if not answer:
        print()
    return answer in ("y", "yes")
