"""A rank whose Python is locked is seen from outside by py-spy, if that is there, while it runs on."""

from __future__ import annotations

import json
import os
import pathlib
import socket

import pytest

from devwidget.distributed.job import make_private, socket_of
from devwidget.distributed.outside_stacks import read_outside_stacks
from devwidget.records.ranks.merging import Heard
from devwidget.report.text.diagnosis import diagnosis_text
from tests.records.ranks.made_up import cluster, model, report


def test_the_user_s_lines_of_the_main_thread_are_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    program, folder, pid = tmp_path / "train.py", make_private(tmp_path / "job"), os.getpid()
    program.write_text("sleep(100)\n", encoding="utf-8")
    library = {"name": "Module._call_impl", "filename": os.__file__, "line": 5}
    frames = [{"name": "Trainer.step", "filename": str(program), "line": 1}, library]
    said = [{"os_thread_id": pid + 1, "frames": [library]}, {"os_thread_id": pid, "frames": frames}]
    (tmp_path / "py-spy.said").write_text(json.dumps(said), encoding="utf-8")
    (tmp_path / "py-spy").write_text('#!/bin/sh\necho "$@" > "$0.asked"\ncat "$0.said"\n', encoding="utf-8")
    (tmp_path / "py-spy").chmod(0o700)
    busy = cluster([report(0, 2, model(1, 8))], r1=Heard(1, "busy"))
    with socket.create_server(str(socket_of(folder, 1)), family=socket.AF_UNIX):
        assert read_outside_stacks(busy, [folder]) == {}
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        stacks = read_outside_stacks(busy, [folder])
    assert (tmp_path / "py-spy.asked").read_text(encoding="utf-8") == f"dump --nonblocking --json --pid {pid}\n"
    assert "rank 1 is at train.py:1 sleep(100), says py-spy" in diagnosis_text(busy, stacks)
