"""In a job of several processes no rank runs the step alone to try a fix."""

import json
import pathlib

import pytest

from tests.distributed.jobs import forked

pytestmark = [pytest.mark.slow, pytest.mark.process]


def run(folder, how):
    """What both ranks end with: weights, and what they say of their fixes."""
    folder.mkdir()
    with forked(2, pathlib.Path(__file__).with_name("ddp.py"), str(folder), how) as job:
        assert job.process.wait(150) == 0
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_a_fault_on_one_rank_of_ddp_is_not_tried_and_both_ranks_learn_as_without_the_trace(tmp_path):
    plain, traced = run(tmp_path / "plain", "plain"), run(tmp_path / "traced", "traced")
    assert [weights for weights, _ in traced] == [weights for weights, _ in plain]
    (_, told), (_, nothing) = traced
    assert set(map(tuple, told)) == {("in a job of several processes", 1)}
    assert nothing == []
