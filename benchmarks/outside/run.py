"""Real fixes of misplaced tensors, from histories of public repositories: the version before is found, the one after is clean.

    python benchmarks/outside/run.py CLONES [--path PACKAGES] [--only WORD] [--save FILE]

`fixes.toml` names repository, commit and a short program that drives the code; the code itself stays in the clones. CLONES
holds them (`owner+name`, `owner/name` or `name`, bare or not), PACKAGES what the repositories import. Each program runs twice
in a process of its own under `devwidget run --gpus 2`. *Found* means that a finding stands at a statement that the commit
changed (where it goes wrong, where the tensor was made or got the name by which an edit moves it, or where an edit goes), or
offers the edit of the commit at another line of the function; *near* means in a function that it changed, *on the way* that the
traceback passes such a statement.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import multiprocessing
import os
import re
import sys
import tempfile
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from history import Changed, Commit, git_directory

import devwidget
from devwidget.cli.main import main as main_of_devwidget
from devwidget.records.finding import Edit, Finding
from devwidget.records.trace import Trace

HERE = Path(__file__).parent
LIMIT_S = 240
SERIOUS = ("error", "warning")
MOVE = re.compile(r"\s*(\w+) = \1\.to\(.*\)")


@dataclass(frozen=True, slots=True)
class Result:
    """What one fix came to.

    Attributes:
        fix: repository and commit.
        before: "found", "near", "on the way", "elsewhere" or "missed".
        kinds: of the findings by which it was found.
        after: "clean", or what was said of the mended version.
        problem: why it could not be run.
    """

    fix: str
    before: str
    kinds: str
    after: str
    problem: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("--path", type=Path, help="packages that the repositories import")
    parser.add_argument("--only", default="", help="a part of the repository's name or of the commit")
    parser.add_argument("--save", type=Path, help="the table as JSON lines")
    options = parser.parse_args()
    fixes = tomllib.loads((HERE / "fixes.toml").read_text(encoding="utf-8"))["fix"]
    results = []
    for fix in fixes:
        if options.only in f"{fix['repository']}@{fix['commit']}":
            results.append(_tried(fix, options.clones, options.path))
            print(_row(results[-1]), flush=True)
    if options.save:
        options.save.write_text("".join(f"{json.dumps(asdict(result))}\n" for result in results), encoding="utf-8")
    print(Counter(f"{result.before}, {result.after.split(' ')[0]}" for result in results))


def _row(result: Result) -> str:
    return " | ".join(["", result.fix, result.before, result.kinds, result.after, result.problem, ""]).strip()


def _tried(fix: dict[str, Any], clones: Path, packages: Path | None) -> Result:
    """Both versions, run and compared."""
    name = f"{fix['repository']}@{fix['commit'][:8]}"
    if "not_run" in fix:
        return Result(name, "not run", "", "", fix["not_run"])
    directory = git_directory(clones, fix["repository"])
    if directory is None:
        return Result(name, "not run", "", "", "no clone")
    commit = Commit(directory, fix["commit"])
    with tempfile.TemporaryDirectory() as scratch:
        before, after = (_run(fix, commit, which, Path(scratch) / which, packages) for which in ("before", "after"))
        if isinstance(before, str) or isinstance(after, str):
            return Result(name, "not run", "", "", f"{before}; {after}" if isinstance(before, str) else str(after))
        where, findings = _found(before, Path(scratch) / "before", commit.changed())
    kinds = ", ".join(sorted({finding.kind for finding in findings}))
    return Result(name, where, kinds, _said(after))


def _run(fix: dict[str, Any], commit: Commit, which: str, tree: Path, packages: Path | None) -> Trace | str:
    """The trace of one version, or why there is none."""
    commit.extract(which, tree)
    program, trace, log = (tree.with_suffix(end) for end in (".py", ".json", ".log"))
    program.write_text(fix["drive"], encoding="utf-8")
    path = [str(each) for each in (tree / fix.get("source", "."), *([packages] if packages else []), HERE)]
    child = multiprocessing.get_context("fork").Process(target=_child, args=(tree, path, program, trace, log))
    child.start()
    child.join(LIMIT_S)
    if child.is_alive():
        child.kill()
        return f"{which}: longer than {LIMIT_S} s"
    said = log.read_text(encoding="utf-8", errors="replace")
    if os.environ.get("OUTSIDE_SHOW"):
        print(said)
    if not trace.exists():
        return f"{which}: {said.strip().splitlines()[-1:]}"
    read = devwidget.load(trace)
    assert isinstance(read, Trace)
    wrong = child.exitcode and not [finding for finding in read.findings if finding.severity == "error"]
    return f"{which}: {_last_error(said)}" if wrong else read


def _child(tree: Path, path: list[str], program: Path, trace: Path, log: Path) -> None:
    """`python -m devwidget run --gpus 2 program`, in a process that has torch already."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(tree)
    sys.path[:0] = ["", *path]  # the first one becomes the folder of the program
    warnings.simplefilter("ignore")
    declare_nms()
    sys.exit(main_of_devwidget(["run", "--gpus", "2", "--save", str(trace), str(program)]))


def declare_nms() -> None:
    """What `import torchvision` asks for: its wheels on PyPI are built for CUDA, and load nothing beside a torch without."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        torch.ops.load_library(str(Path(spec.origin).with_name("_C.so")))  # type: ignore[no-untyped-call]
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _last_error(said: str) -> str:
    """The exception at the end of the traceback, which stands before the report."""
    lines = [line for line in said.split("\nTrace: ")[0].splitlines() if line and not line[0].isspace()]
    return lines[-1][:160] if lines else "failed without a word"


def _found(trace: Trace, tree: Path, changed: dict[str, Changed]) -> tuple[str, list[Finding]]:
    """How near to the change the findings are, and which are that near."""
    serious = [finding for finding in trace.findings if finding.severity in SERIOUS]
    of_file = {str(tree / file): each for file, each in changed.items()}
    if found := [finding for finding in serious if _is_found(finding, of_file)]:
        return "found", found
    if near := [
        finding for finding in serious if any(line in of_file[file].functions for file, line in _places(finding, of_file))
    ]:
        return "near", near
    lines = {f"{Path(file).name}:{line}" for file, each in changed.items() for line in each.statements}
    frames = trace.failure.frames if trace.failure else ()
    passed = any(Path(frame.split(" in ")[0]).name in lines for frame in frames)
    return ("on the way" if serious and passed else "elsewhere" if serious else "missed"), serious


def _is_found(finding: Finding, of_file: dict[str, Changed]) -> bool:
    """It points at what the commit changed, or makes the same edit in the same function."""
    if any(line in of_file[file].statements for file, line in _places(finding, of_file)):
        return True
    moves = [(edit, moved[1]) for fix in finding.fixes for edit in fix.edits if (moved := MOVE.fullmatch(edit.text))]
    return any(
        (edit.first in each.functions and name in each.moved) or _named(edit, name) in each.statements
        for edit, name in moves
        if (each := of_file.get(edit.file))
    )


def _named(edit: Edit, name: str) -> int:
    """Of an edit that puts `mask = mask.to(...)` before a line, the line that gives `mask` its value there; 0."""
    tree = ast.parse(Path(edit.file).read_text(encoding="utf-8"))
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return max((node.lineno for node in names if node.id == name and node.lineno < edit.first), default=0)


def _places(finding: Finding, of_file: dict[str, Changed]) -> Iterator[tuple[str, int]]:
    """Lines of these files at which it points: where it goes wrong, where the tensor is from, what its edits change."""
    for site in (finding.fault, finding.birth):
        if site is not None and site.file in of_file:
            yield site.file, site.line
    for edit in (edit for fix in finding.fixes for edit in fix.edits if edit.file in of_file):
        yield from ((edit.file, line) for line in range(edit.first, max(edit.last, edit.first) + 1))


def _said(trace: Trace) -> str:
    """What is said of the mended version: errors and warnings."""
    serious = Counter(f"{finding.severity} {finding.kind}" for finding in trace.findings if finding.severity in SERIOUS)
    return ", ".join(f"{count} {kind}" for kind, count in serious.items()) or "clean"


if __name__ == "__main__":
    main()
