"""Programs in the shape of what people run: silent as they stand, and each bug planted in them found, placed and cured.

A line of a program that ends in `#! kind: other code` is clean as it is; with the other code it has a bug of that kind. A line
that ends in `#^` made the tensor that such a line no longer moves, or keeps: it is as right a place of the bug.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import runpy
import sys
from dataclasses import dataclass, replace
from unittest import mock

import pytest
import torch

import devwidget
from devwidget import fix_writer

HERE = pathlib.Path(__file__).parent
PROGRAMS = sorted(path for path in (HERE / "programs").iterdir() if path.suffix == ".py" or (path / "main.py").exists())
QUICK = {"language_model", "vae"}
_MARKER = re.compile(r"^(?P<indent> *)(?P<clean>.*?)  #! (?P<kind>[a-z-]+): (?P<bug>.*)$")


@dataclass(frozen=True)
class Bug:
    program: pathlib.Path
    file: pathlib.Path
    line: int
    kind: str
    code: str

    def __str__(self) -> str:
        return (
            f"{self.program.stem}/{self.file.name}:{self.line}" if self.program.is_dir() else f"{self.program.stem}:{self.line}"
        )


def files_of(program):
    return sorted(program.glob("*.py")) if program.is_dir() else [program]


def bugs_of(program):
    lines = ((file, *each) for file in files_of(program) for each in enumerate(file.read_text().splitlines(), 1))
    found = ((file, at, _MARKER.match(line)) for file, at, line in lines)
    return [Bug(program, file, at, match["kind"], match["indent"] + match["bug"]) for file, at, match in found if match]


def births_in(program):
    """File and line of what the markers call a birth."""
    lines = ((file, *each) for file in files_of(program) for each in enumerate(file.read_text().splitlines(), 1))
    return {(file.name, at) for file, at, line in lines if line.endswith("  #^")}


def planted(file, bug=None):
    """The text of a file of a program without its markers, and with one bug if that stands in it."""
    lines = []
    for at, line in enumerate(file.read_text().splitlines(), 1):
        match = _MARKER.match(line)
        clean = match["indent"] + match["clean"] if match else line.removesuffix("  #^")
        lines.append(bug.code if bug is not None and (bug.file, bug.line) == (file, at) else clean)
    return "\n".join(lines) + "\n"


def run(path):
    """The trace of a program, whether it ends well or not."""
    torch.manual_seed(0)
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    recording, modules = devwidget.record(), set(sys.modules)
    with (
        mock.patch("sys.argv", [str(path)]),
        mock.patch("sys.path", [str(path.parent), *sys.path]),
        mock.patch.dict("os.environ"),
        mock.patch.object(sys, "excepthook", sys.excepthook),  # torch.distributed puts its own there
        devwidget.simulate(gpus=2),
        silent[0],
        silent[1],
        contextlib.suppress(RuntimeError, TypeError, ValueError, AssertionError),
        recording,
    ):
        runpy.run_path(str(path), run_name="__main__")
    for name in set(sys.modules) - modules:  # the next program has a `model` of its own
        if is_below(getattr(sys.modules[name], "__file__", None), path.parent):
            del sys.modules[name]
    return recording.trace


def is_below(file, folder):
    return file is not None and pathlib.Path(file).is_relative_to(folder)


def written(folder, program, bug=None):
    """A copy of a program in a folder of its own, and the file that starts it."""
    folder.mkdir()
    for file in files_of(program):
        (folder / file.name).write_text(planted(file, bug), encoding="utf-8")
    return folder / ("main.py" if program.is_dir() else program.name)


def marked(items, name):
    return [pytest.param(item, marks=[] if name(item) in QUICK else [pytest.mark.fuzz], id=str(name(item))) for item in items]


@pytest.mark.parametrize("program", marked(PROGRAMS, lambda program: program.stem))
def test_a_program_without_a_bug_is_clean(program, tmp_path):
    trace = run(written(tmp_path / "clean", program))
    assert not trace.error
    assert [finding for finding in trace.findings if finding.severity != "info"] == []


@dataclass(frozen=True)
class Outcome:
    """What became of a bug: found, at its line, gone after the first edit, and left there by an edit that is called sure."""

    found: bool = False
    placed: bool = False
    cured: bool = False
    misled: bool = False


def cures(edits, folder, program, bug):
    """Whether nothing is left of a bug after edits."""
    path = written(folder, program, bug)
    for file, changes in edits.items():
        copy = folder / pathlib.Path(file).name
        moved = [replace(edit, file=str(copy)) for edit in changes]
        copy.write_text(fix_writer.apply_to_text(str(copy), moved), encoding="utf-8")
    again = run(path)
    return not again.error and all(each.severity == "info" for each in again.findings)


def outcome(bug, folder):
    name = str(bug).replace("/", "-").replace(":", "-")
    path = written(folder / name, bug.program, bug)
    found = [finding for finding in run(path).findings if finding.kind == bug.kind]
    if not found:
        return Outcome()
    there = {(bug.file.name, bug.line), *births_in(bug.program)}
    sites = [site for each in found for site in (each.fault, each.birth) if site is not None]
    placed = any((pathlib.Path(site.file).name, site.line) in there for site in sites)
    edits = fix_writer.edits_by_file(found[:1])
    cured = bool(edits) and cures(edits, folder / f"{name}-mended", bug.program, bug)
    is_sure = bool(found[0].fixes) and found[0].fixes[0].confidence == "sure"
    return Outcome(True, placed, cured, misled=is_sure and bool(edits) and not cured)


@pytest.mark.parametrize("name", sorted(QUICK))
def test_its_bugs_are_found_at_their_lines(name, tmp_path):
    for bug in bugs_of(HERE / "programs" / f"{name}.py"):
        told = outcome(bug, tmp_path)
        assert told.found, bug
        assert told.placed, bug


@pytest.mark.fuzz
def test_bugs_are_found_placed_and_cured(tmp_path):
    bugs = [bug for program in PROGRAMS for bug in bugs_of(program)]
    outcomes = {str(bug): outcome(bug, tmp_path) for bug in bugs}
    for what in ("found", "placed", "cured"):
        print(f"{len(bugs)} bugs; not {what}: {[name for name, each in outcomes.items() if not getattr(each, what)]}")
    assert all(len(bugs_of(program)) == 2 for program in PROGRAMS)
    assert all(each.found for each in outcomes.values())
    assert [name for name, each in outcomes.items() if each.misled] == []
    assert sum(each.placed for each in outcomes.values()) >= len(bugs) * 0.95
    assert sum(each.cured for each in outcomes.values()) >= len(bugs) * 0.9
