"""Test suites of public libraries, without a change: on the plain CPU, then on virtual GPUs.

    python benchmarks/outside/suites.py CLONES [--path PACKAGES] [--only WORD]

`suites.toml` names repository, commit and tests; CLONES holds the repositories (`owner+name`, `owner/name` or `name`, bare or
not), PACKAGES what they import. The commit is unpacked into a folder of its own, and pytest runs there twice, in a process of
its own: as it is, and with `-p devwidget.pytest_plugin --devwidget-gpus=2`. A row of the table has what passed, failed and
was skipped each time, how many tests put something on a GPU, and processor time. Below it stands each test that fails on
virtual GPUs and does not fail without.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from history import git_directory

HERE = Path(__file__).parent
GPUS = ("-p", "devwidget.pytest_plugin", "--devwidget-gpus=2", "-p", "gpu_uses")


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a suite came to.

    Attributes:
        outcomes: "passed", "failed" or "skipped" by the name of the test.
        on_gpu: how many tests put something on a GPU.
        cpu_s: processor time, user and system.
        peak_mib: resident memory at most.
        said: the line of the plugin, which sums up.
    """

    outcomes: dict[str, str]
    on_gpu: int
    cpu_s: float
    peak_mib: float
    said: str


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("--path", type=Path, help="packages that the suites import")
    parser.add_argument("--only", default="", help="a part of the repository's name")
    options = parser.parse_args()
    for suite in tomllib.loads((HERE / "suites.toml").read_text(encoding="utf-8"))["suite"]:
        if options.only in suite["repository"]:
            _compare(suite, options.clones, options.path)


def _compare(suite: dict[str, Any], clones: Path, packages: Path | None) -> None:
    """Print the row of one suite, and what fails on virtual GPUs alone."""
    name = f"{suite['repository']}@{suite['commit'][:8]}"
    directory = git_directory(clones, suite["repository"])
    if directory is None:
        print(f"{name}: no clone", flush=True)
        return
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / suite["repository"].split("/")[1]
        _extract(directory, suite["commit"], tree)
        plain = _run(suite, tree, packages, suite.get("on_cpu", {}), ())
        virtual = _run(suite, tree, packages, suite.get("on_gpu", {}), GPUS)
    cells = [name, _counted(plain), _counted(virtual), str(virtual.on_gpu), f"{plain.cpu_s:.0f} s", f"{virtual.cpu_s:.0f} s"]
    print("| " + " | ".join(cells) + " |", flush=True)
    print(f"  {plain.peak_mib:.0f} and {virtual.peak_mib:.0f} MiB; {virtual.said}")
    for test in sorted(_failed(virtual) ^ _failed(plain)):
        print(f"  {test}: {plain.outcomes.get(test, 'not there')} -> {virtual.outcomes.get(test, 'not there')}")


def _extract(directory: Path, commit: str, folder: Path) -> None:
    """Write the tree of a commit, without what is large and never tested: some copies of repositories lack it."""
    parts = (".", ":(exclude)*.gif", ":(exclude)*.ipynb")
    packed = subprocess.run(["git", "--git-dir", directory, "archive", commit, *parts], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _run(suite: dict[str, Any], tree: Path, packages: Path | None, variables: dict[str, str], more: tuple[str, ...]) -> Run:
    """pytest in the tree, in one process."""
    path = [str(tree / suite.get("source", ".")), str(HERE), str(HERE.parents[1]), *([str(packages)] if packages else [])]
    environment = os.environ | variables | {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    report, log = tree.with_suffix(".xml"), tree.with_suffix(".log")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", f"--junitxml={report}"]
    with log.open("w") as file:
        child = subprocess.Popen([*command, *more, *suite["tests"]], cwd=tree, env=environment, stdout=file, stderr=file)
        _, _, used = os.wait4(child.pid, 0)
    said = log.read_text(encoding="utf-8", errors="replace")
    cases = list(ElementTree.parse(report).iter("testcase"))
    outcomes = {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}
    on_gpu = sum(case.find("properties/property[@name='gpu']") is not None for case in cases)
    return Run(
        outcomes,
        on_gpu,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        next((line for line in said.splitlines() if line.startswith("devwidget:")), ""),
    )


def _outcome(case: ElementTree.Element) -> str:
    return next(
        (
            word
            for tag, word in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped"))
            if case.find(tag) is not None
        ),
        "passed",
    )


def _counted(run: Run) -> str:
    counts = Counter(run.outcomes.values())
    return f"{counts['passed']} / {counts['failed']} / {counts['skipped']}"


def _failed(run: Run) -> set[str]:
    return {test for test, outcome in run.outcomes.items() if outcome == "failed"}


if __name__ == "__main__":
    main()
