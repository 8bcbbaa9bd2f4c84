"""What each rank leaves in a folder is one record, without one rank waiting for another."""

from __future__ import annotations

import pathlib

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.ranks.answer import Reporter
from devwidget.extras.ranks.job import find_identity
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.records.errors import DevwidgetError
from devwidget.records.trace import Trace


def rank_leaves(number: int, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, model: nn.Module) -> None:
    monkeypatch.setenv("RANK", str(number))
    monkeypatch.setenv("WORLD_SIZE", "3")
    with devwidget.record(path=folder, checksums=True) as recording:
        recording.attach(model)
        model(torch.ones(2, 4)).sum().backward()


def test_files_of_ranks_are_one_record(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    model, folder = nn.Linear(4, 4), tmp_path / "job"
    for number in (0, 2):
        rank_leaves(number, folder, monkeypatch, model)
    cluster = devwidget.ranks(folder)
    assert [rank.state for rank in cluster.ranks] == ["answered", "unknown", "answered"]
    assert [column.ranks for column in lay_out_columns(cluster).each] == [(0, 2)]
    assert cluster.findings == ()
    assert isinstance(devwidget.load(folder / "rank-2.trace.json"), Trace)


def test_copies_that_drifted_apart_are_found_in_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(3):
        torch.manual_seed(number == 1)
        rank_leaves(number, tmp_path / "job", monkeypatch, nn.Linear(4, 4))
    (finding,) = devwidget.ranks(tmp_path / "job").findings
    assert finding.kind == "drifted-copies"
    assert "`weight`, `bias` on rank 1 differ from the others" in finding.headline


def test_a_process_that_is_no_rank_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DevwidgetError, match="this process is not a rank"):
        devwidget.record(path=tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_the_steps_of_ranks_are_told_together_and_by_what_a_rank_says_of_itself(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    model, folder = nn.Linear(4, 4), tmp_path / "job"
    for number in range(3):
        rank_leaves(number, folder, monkeypatch, model)
    cluster = devwidget.ranks(folder)
    assert cluster.traced is not None
    assert [kind.ranks for kind in cluster.traced.kinds] == [((0, 2),)]
    told = Reporter(model, tuple).make_report(find_identity()).traced
    assert told is not None
    assert told == cluster.traced.kinds[0].step
