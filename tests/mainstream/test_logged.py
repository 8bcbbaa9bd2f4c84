"""Programs that read a loss at each step: the first edits make them wait less, and print what they printed."""

from __future__ import annotations

import pathlib
import shutil

from devwidget import fix_writer
from tests.mainstream.test_mainstream import run

HERE = pathlib.Path(__file__).parent / "logged"


def waits_of(trace, call):
    return sum(wait.count for wait in trace.waits if wait.call == call)


def run_printing(path, monkeypatch):
    """The trace of a program, and what it printed."""
    printed = []
    monkeypatch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words))))
    trace = run(path)
    monkeypatch.undo()
    return trace, printed


def test_sums_and_lists_are_read_once_below_their_loop(tmp_path, monkeypatch):
    path = pathlib.Path(shutil.copy(HERE / "loss_and_history.py", tmp_path))
    before, printed = run_printing(path, monkeypatch)
    findings = [finding for finding in before.findings if finding.kind == "host-sync"]
    assert [finding.fault.text for finding in findings] == [
        "total += loss.item() * len(x)",
        "history.append(float(loss.detach()))",
    ]
    for finding in reversed(findings):  # from below, so that the lines of the others stay
        path.write_text(fix_writer.apply_to_text(str(path), fix_writer.edits_by_file([finding])[str(path)]), encoding="utf-8")
    after, again = run_printing(path, monkeypatch)
    assert not after.error
    assert again == printed
    assert [finding for finding in after.findings if finding.kind == "host-sync"] == []
    assert (waits_of(before, "item") + waits_of(before, "__float__"), waits_of(after, "item")) == (30, 8)


def test_what_the_loop_itself_reads_has_no_edit():
    findings = [each for each in run(HERE / "read_in_the_loop.py").findings if each.kind == "host-sync"]
    assert len(findings) > 0
    assert [fix.edits for finding in findings for fix in finding.fixes if fix.edits] == []
