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
from tests.sampling import as_slow

HERE = pathlib.Path(__file__).parent
PROGRAMS = sorted(path for path in (HERE / "programs").iterdir() if path.suffix == ".py" or (path / "main.py").exists())
QUICK = {"autoencoder_parallel", "ddp", "language_model", "vae"}
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


BUGS = [bug for program in PROGRAMS for bug in bugs_of(program)]


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


def marked(items, is_quick):
    return [item if is_quick(item) else as_slow(item) for item in items]


@pytest.mark.parametrize("program", marked(PROGRAMS, lambda program: program.stem in QUICK), ids=lambda program: program.stem)
def test_a_program_without_a_bug_is_clean(program, tmp_path):
    trace = run(written(tmp_path / "clean", program))
    assert not trace.error
    assert [finding for finding in trace.findings if finding.severity != "info"] == []


@pytest.mark.parametrize("bug", marked(BUGS, lambda bug: bug.program.stem in QUICK), ids=str)
def test_a_bug_is_found_at_its_line_and_cured_by_its_first_edit(bug, tmp_path):
    found = [each for each in run(written(tmp_path / "faulty", bug.program, bug)).findings if each.kind == bug.kind]
    sites = {site for each in found for site in (each.fault, each.birth) if site is not None}
    there = {(bug.file.name, bug.line), *births_in(bug.program)}
    assert there & {(pathlib.Path(site.file).name, site.line) for site in sites}
    edits = fix_writer.edits_by_file(found[:1])
    assert edits
    path = written(tmp_path / "mended", bug.program, bug)
    for file, changes in edits.items():
        copy = path.with_name(pathlib.Path(file).name)
        moved = [replace(edit, file=str(copy)) for edit in changes]
        copy.write_text(fix_writer.apply_to_text(str(copy), moved), encoding="utf-8")
    again = run(path)
    assert not again.error
    assert [each for each in again.findings if each.severity != "info"] == []
