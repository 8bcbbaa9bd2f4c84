"""In a job of several processes no rank runs the step alone to try a fix."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def run(folder, how):
    """What both ranks end with: weights, and what they say of their fixes."""
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = pathlib.Path(__file__).with_name("ddp.py")
    ended = subprocess.run([*command, str(program), str(folder), how], env=environ, timeout=150, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_a_fault_on_one_rank_of_ddp_is_not_tried_and_both_ranks_learn_as_without_the_trace(tmp_path):
    plain, traced = run(tmp_path / "plain", "plain"), run(tmp_path / "traced", "traced")
    assert [weights for weights, _ in traced] == [weights for weights, _ in plain]
    (_, told), (_, nothing) = traced
    assert set(map(tuple, told)) == {("in a job of several processes", 1)}
    assert nothing == []
