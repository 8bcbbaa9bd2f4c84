"""Many ranks: each writes a file of its own, and of all together the one that the others wait for is told."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import devwidget
from devwidget.extras.watch.records.job import SlowRank, WatchedJob
from devwidget.extras.watch.records.run import StepTable, WatchedRun
from devwidget.records.errors import UnreadableError

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = str(pathlib.Path(__file__).with_name("straggling.py"))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("slow", [1, pytest.param(-1, marks=pytest.mark.slow)])
def test_a_rank_that_is_slow_in_forward_is_told_and_a_job_without_one_has_none(tmp_path: pathlib.Path, slow: int) -> None:
    command = [sys.executable, "-m", "tests.extras.ranks.forked", "3", PROGRAM, str(tmp_path), str(slow)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, timeout=300)
    job = devwidget.open(tmp_path)
    assert job.ranks == (0, 1, 2)
    assert [run.steps.total for run in job.runs] == [40, 40, 40]
    found = job.slow_rank
    if slow < 0:
        assert found is None
        return
    assert (found.rank, found.part) == (1, "forward")
    assert found.seconds > 0.05 > found.others
    assert "the others wait for rank 1: forward takes 5" in str(job)
    assert (found.line.site.text, found.line.site.function) == ("time.sleep(0.05)", "forward")
    assert "per step are spent at straggling.py:23  time.sleep(0.05)" in str(job)
    assert devwidget.load(job.save(tmp_path / "job.json")) == job


def run(**parts: int) -> WatchedRun:
    table = StepTable()
    for step in range(50):
        table.add_step({"first": step, "count": 1, "backward": 5000, **parts})
    return WatchedRun("Net", table.make_rows())


def test_who_waits_is_not_who_is_slow() -> None:
    job = WatchedJob((0, 1), (run(forward=1000, backward=30_000), run(forward=1000, data=26_000)))
    assert job.slow_rank == SlowRank(1, "data", 0.026, 0.0)


def test_ranks_that_differ_by_little_are_not_told() -> None:
    assert WatchedJob((0, 1), (run(forward=1000), run(forward=1900))).slow_rank is None
    assert WatchedJob((0,), (run(forward=1000),)).slow_rank is None


def test_a_folder_with_what_is_no_run_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "watch.rank-0.jsonl").write_text("{}")
    with pytest.raises(UnreadableError):
        devwidget.open(tmp_path)
