"""A run in a file: what was watched, also while it goes on, and of any length."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.watch.records import run as run_records
from devwidget.extras.watch.records.run import MOST_ROWS, RecordedStep, StepTable, fold_rows
from devwidget.extras.watch.run_log import RunLog
from devwidget.records.errors import UnreadableError
from devwidget.records.trace import Trace


def row(step):
    memory = {"cuda:0 allocated": 1000 + step, "cuda:0 reserved": 4096, "cuda:0 peak": 2000 + step}
    return {"first": step, "count": 1, "data": step % 7, "forward": 100, **memory}


def test_a_file_holds_the_run_that_was_watched(tmp_path):
    path = tmp_path / "watch.jsonl"
    model = nn.Linear(2, 2)
    with devwidget.watch(model, path=path) as run:
        for _ in range(12):
            model(torch.ones(1, 2)).sum().backward()
    assert devwidget.open(path) == devwidget.load(path) == run.result
    assert list(devwidget.open(path).recorded) == [10]


def test_a_saved_run_is_the_run(tmp_path):
    model = nn.Linear(2, 2)
    with devwidget.watch(model) as run:
        model(torch.ones(1, 2)).sum().backward()
    assert devwidget.load(run.save(tmp_path / "run.json")) == run.result
    assert "Watched run of Linear: 1 step, no findings" in str(run)
    assert list(run.to_frame()["count"]) == [1]


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "watch.jsonl"
    file = RunLog("Net", path)
    for step in range(600):
        file.add_row(row(step))
    file.write_part(ends=True)
    return path


def test_a_line_that_was_cut_off_is_no_damage(written):
    whole = devwidget.open(written)
    with written.open("ab") as file:
        file.write(written.read_bytes()[:300])
    assert devwidget.open(written) == whole
    assert whole.steps.total == 600


def test_a_line_that_is_damaged_is(written):
    written.write_bytes(written.read_bytes().replace(b'"forward": [100', b'"forward": ["x"', 1))
    with pytest.raises(UnreadableError, match=r"steps\.forward\[0\]: expected a whole number"):
        devwidget.open(written)


def test_a_long_run_has_as_many_rows_from_its_file_as_in_memory(tmp_path):
    steps = 3 * MOST_ROWS + 17
    file, table = RunLog("Net", tmp_path / "watch.jsonl"), StepTable()
    for step in range(steps):
        file.add_row(row(step))
        table.add_step(row(step))
    file.write_part(ends=True)
    opened = devwidget.open(tmp_path / "watch.jsonl").steps
    assert opened == table.make_rows()
    assert len(opened) <= MOST_ROWS
    assert opened.total == sum(opened.count) == steps
    assert sum(opened.forward) == 100 * steps
    assert opened.memory[0].allocated[-1] == 1000 + steps - 1


def test_folded_rows_add_times_and_keep_the_highest_bytes():
    table = StepTable()
    for step in range(5):
        table.add_step(row(step))
    folded = fold_rows(table.make_rows(), 3)
    assert folded.first == (0, 2, 4)
    assert folded.data == (0 + 1, 2 + 3, 4)
    assert folded.memory[0].allocated == (1001, 1003, 1004)


def test_a_file_that_cannot_be_written_ends_the_file_and_not_the_run(tmp_path):
    path = tmp_path / "watch.jsonl"
    model = nn.Linear(2, 2)
    with devwidget.watch(model, path=path) as run:
        model(torch.ones(1, 2))
        path.unlink()
        path.mkdir()
    assert run.steps.total == 1
    assert run.result.not_checked[0].startswith("the file of the run: IsADirectoryError")


def test_a_file_that_is_followed_has_whole_rows_and_the_last_one_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(run_records, "MOST_ROWS", 8)
    path = tmp_path / "watch.jsonl"
    file = RunLog("Net", path)
    for step in range(27):
        file.add_row(row(step))
        if step == 20:
            file.write_part()
            assert devwidget.open(path).steps.total == 20
    file.write_part(ends=True)
    lines = [json.loads(line)["data"]["steps"] for line in path.read_text().splitlines()]
    assert [count for line in lines for count in line["count"]] == [1] * 8 + [2] * 4 + [4] * 2 + [3]
    assert devwidget.open(path).steps.total == 27


def test_recorded_steps_of_no_news_come_into_the_file_ever_more_seldom(tmp_path):
    path = tmp_path / "watch.jsonl"
    log = RunLog("Net", path)
    for number in range(100, 20_000, 100):
        log.add_recorded(RecordedStep(number, "each 100 steps", Trace()))
    written = list(devwidget.open(path).recorded)
    assert written[:16] == list(range(100, 1700, 100))
    assert written[16:20] == [2000, 2400, 2900, 3500]
    assert len(written) < 30
