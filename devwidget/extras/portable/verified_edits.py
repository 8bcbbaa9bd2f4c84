"""Verify the edits: run the step with them, or a copy of the script, on virtual GPUs if the machine has no others."""

from __future__ import annotations

import dataclasses
import linecache
import os
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path

from devwidget.extras.portable.hard_coded_device import KIND
from devwidget.extras.portable.hard_coded_device import RULE as RULE
from devwidget.records.device import SIMULATE_VARIABLE
from devwidget.records.finding import Edit, Finding, Fix, apply_edits
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace
from devwidget.rules.edits.source_file import code_of
from devwidget.trying.edited_code import locate_edit
from devwidget.trying.installed_edits import has_run

MOST_SECONDS = 300
"""A run that takes longer is ended."""
_ROOT = Path(__file__).parents[3]
_IMPOSSIBLE = Message("its lines cannot replace code that has already run")


def verify_edits(trace: Trace, verify: Callable[[Trace], Trace]) -> Trace:
    """Return the trace with its edits for any accelerator verified, all of them in one run if that works.

    Args:
        trace: its other findings are repaired in the run.
        verify: runs the step with the edits of errors and warnings.
    """
    found: list[Finding] = []
    for finding in trace.findings:
        if finding.kind != KIND or any(map(_has_run, finding.fixes)):
            found.append(dataclasses.replace(finding, fixes=()))
        else:  # no edit of a hint is run, so it is one of a warning for the time of the run
            found.append(dataclasses.replace(finding, severity="warning"))
    judged = verify(dataclasses.replace(trace, findings=tuple(found)))
    pairs = zip(trace.findings, judged.findings, strict=True)
    return dataclasses.replace(judged, findings=tuple(_with_outcome(before, after) for before, after in pairs))


def _has_run(fix: Fix) -> bool:
    """Whether an edit is in code that ran before the step, which no trial can replace."""
    for edit in fix.edits:
        code = code_of(edit.file, tuple(linecache.getlines(edit.file)))
        if code is None or has_run(locate_edit(code.tree, edit.first, edit.last)):
            return True
    return False


def _with_outcome(before: Finding, after: Finding) -> Finding:
    if before.kind != KIND:
        return before
    if after.severity != "info":
        return dataclasses.replace(after, severity="info")
    fixes = tuple(dataclasses.replace(fix, not_tried=_IMPOSSIBLE) for fix in before.fixes)
    return dataclasses.replace(before, fixes=fixes)


def verify_script(trace: Trace, script: str, args: Sequence[str]) -> Trace:
    """Return the trace with the edits of a script verified, if the edited script runs and prints the same.

    Each run has a temporary copy of the script, in an empty folder. There are at most three.
    """
    file = os.path.abspath(script)
    edits: dict[Edit, None] = {}
    for finding in trace.findings:
        if _is_of_file(finding, file):
            edits |= dict.fromkeys(finding.fixes[0].edits)
    if not edits:
        return trace
    with tokenize.open(file) as source:
        rows = source.read().splitlines()
    try:
        outcome = _compare_runs(file, rows, apply_edits(rows, edits), args)
    except subprocess.TimeoutExpired:
        outcome = Message("the edits are not verified: the script runs longer than {seconds} s", seconds=MOST_SECONDS)
    found = [_with_result(each, outcome) if _is_of_file(each, file) else each for each in trace.findings]
    return dataclasses.replace(trace, findings=tuple(found))


def _is_of_file(finding: Finding, file: str) -> bool:
    if finding.kind != KIND or not finding.fixes:
        return False
    return all(edit.file == file for edit in finding.fixes[0].edits)


def _with_result(finding: Finding, outcome: str) -> Finding:
    if outcome:
        return dataclasses.replace(finding, notes=(*finding.notes, outcome))
    verified = dataclasses.replace(finding.fixes[0], verified=True, confidence="sure")
    return dataclasses.replace(finding, fixes=(verified,))


def _compare_runs(file: str, before: list[str], after: list[str], args: Sequence[str]) -> str:
    """Return why the edits are not verified; "" if they are."""
    expected = _run_copy(file, before, args)
    if expected[0]:
        return Message("the edits were not run: a copy of the script fails in an empty folder on virtual GPUs")
    if _run_copy(file, after, args) == expected:
        return ""
    if _run_copy(file, before, args) != expected:
        return Message("the edits are not verified: what the script prints differs from run to run")
    return Message("with the edits of all these lines the script fails or prints something else")


def _run_copy(file: str, rows: list[str], args: Sequence[str]) -> tuple[int, str]:
    """Return exit status and output of a copy of the script."""
    path = os.pathsep.join([os.path.dirname(file), str(_ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {SIMULATE_VARIABLE: "gpus=2", **os.environ, "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, os.path.basename(file))
        copy.write_text("\n".join([*rows, ""]), encoding="utf-8")
        command = [sys.executable, "-c", "from devwidget.cli.simulated_program import main; main()", str(copy), *args]
        ran = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
        )
        return ran.returncode, ran.stdout.replace(folder, "")
