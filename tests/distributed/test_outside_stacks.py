"""A rank whose Python is locked is seen from outside by py-spy, if that is there, while it runs on."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from devwidget.distributed.job import make_private, socket_of
from devwidget.distributed.outside_stacks import read_outside_stacks
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.merging import Heard
from devwidget.records.site import Site
from devwidget.report.text.diagnosis import diagnosis_text
from tests.records.ranks.made_up import cluster, model, report

LOCKED = """
import ctypes, socket, sys

def train(path):
    with socket.create_server(path, family=socket.AF_UNIX):
        print("ready", flush=True)
        ctypes.PyDLL(None).sleep(100)

train(sys.argv[1])
"""


@pytest.fixture
def locked(tmp_path: pathlib.Path) -> Iterator[tuple[pathlib.Path, pathlib.Path, int]]:
    """A process that listens as rank 1 and holds Python's lock: its folder, its program, and its number."""
    program = tmp_path / "train.py"
    program.write_text(LOCKED, encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="ranks-") as above:
        folder = make_private(pathlib.Path(above) / "job")
        process = subprocess.Popen([sys.executable, program, socket_of(folder, 1)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield folder, program, process.pid
        process.kill()
        process.communicate()


def busy_job() -> Cluster:
    return cluster([report(0, 2, model(1, 8))], r1=Heard(1, "busy", note="its process is alive, and holds Python's lock"))


@pytest.mark.skipif(shutil.which("py-spy") is None, reason="needs py-spy")
def test_the_line_of_a_rank_whose_python_is_locked_is_told(locked: tuple[pathlib.Path, pathlib.Path, int]):
    folder, program, _ = locked
    stacks = read_outside_stacks(busy_job(), [folder])
    assert [(site.file, site.line, site.function) for site in stacks[1]] == [
        (str(program), 9, "<module>"), (str(program), 7, "train"),
    ]  # fmt: skip
    assert "rank 1 is at train.py:7 ctypes.PyDLL(None).sleep(100), says py-spy" in diagnosis_text(busy_job(), stacks)


def put_in_path(folder: pathlib.Path, said: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy that says this of any process."""
    (folder / "said.json").write_text(json.dumps(said), encoding="utf-8")
    program = folder / "py-spy"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\ncat {folder}/said.json\n', encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_it_is_asked_without_a_pause_of_the_process_and_only_the_user_s_lines_of_the_main_thread_are_told(
    locked: tuple[pathlib.Path, pathlib.Path, int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    folder, program, pid = locked
    library = {"name": "Module._call_impl", "filename": os.__file__, "line": 5}
    own = {"name": "Trainer.step", "filename": str(program), "line": 7}
    threads = [
        {"os_thread_id": pid + 1, "frames": [library]},
        {"os_thread_id": pid, "frames": [library, own, library, {**own, "line": 9, "name": "<module>"}]},
    ]
    put_in_path(tmp_path, threads, monkeypatch)
    stacks = read_outside_stacks(busy_job(), [folder])
    assert stacks == {
        1: (
            Site(str(program), 9, "train(sys.argv[1])", "<module>"),
            Site(str(program), 7, "ctypes.PyDLL(None).sleep(100)", "step"),
            Site(os.__file__, 5, stacks[1][-1].text, "_call_impl"),
        )
    }
    assert (tmp_path / "asked").read_text(encoding="utf-8") == f"dump --nonblocking --json --pid {pid}\n"


@pytest.mark.parametrize("said", [[], {}, [{"os_thread_id": 1, "frames": []}], "no threads", [[7]]])
def test_what_makes_no_sense_is_not_told(
    locked: tuple[pathlib.Path, pathlib.Path, int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, said: object
):
    put_in_path(tmp_path, said, monkeypatch)
    assert read_outside_stacks(busy_job(), [locked[0]]) == {}


def test_without_py_spy_or_a_process_of_this_machine_nothing_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    assert read_outside_stacks(busy_job(), [tmp_path]) == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_outside_stacks(busy_job(), [tmp_path]) == {}
