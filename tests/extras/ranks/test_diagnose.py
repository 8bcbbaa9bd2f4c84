"""`diagnose`: the verdict on a job in ten lines at most, and an exit status."""

from __future__ import annotations

import dataclasses
import pathlib
import time

import pytest

import devwidget
from devwidget.cli.main import main
from devwidget.extras.ranks.job import file_of
from devwidget.extras.ranks.records.rank import Collective, LastWord
from devwidget.extras.ranks.words.cluster import MOST_LINES, diagnosis_text
from devwidget.records.loading.json_io import dumps
from devwidget.records.site import Site
from tests.extras.ranks.records.made_up import faulty, model, report

LINE = Site("/home/ada/train.py", 17, "labels = batch['labels']", "train")


@pytest.fixture
def job(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "job"
    folder.mkdir(mode=0o700)
    return folder


def leave(folder: pathlib.Path, number: int, word: LastWord, **more: object) -> None:
    whole = report(number, 4, model(1, 8), taken=time.time())
    file_of(folder, number).write_text(dumps(dataclasses.replace(whole, last_word=word, **more)))


def told(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str]]:
    status = main(["diagnose", *args])
    return status, capsys.readouterr().out.splitlines()


def test_a_job_that_ended_in_order_is_well(job: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    for number in range(4):
        leave(job, number, LastWord("ended"))
    status, lines = told(capsys, str(job))
    assert (status, lines[0]) == (0, "4 ranks · 4 ended · 1 distinct placement")
    assert lines[1].startswith("no problems found; checked: absent-from-collective, ")


def test_the_exception_that_ended_a_job_is_named_with_its_line(job: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    for number in range(3):
        leave(job, number, LastWord("terminated", "SIGTERM"))
    leave(job, 3, LastWord("raised", "KeyError: 'labels'", (LINE,)), stack=(LINE,))
    status, lines = told(capsys, str(job))
    assert status == 1
    assert lines[:3] == [
        "4 ranks · 3 terminated, 1 raised · 1 distinct placement",
        "error[rank-raised] rank 3 raised `KeyError: 'labels'`",
        "  where: train.py:17  labels = batch['labels']",
    ]
    assert len(lines) <= MOST_LINES


def test_a_rank_of_which_nothing_is_known_is_not_well(job: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    leave(job, 0, LastWord("ended"))
    status, lines = told(capsys, str(job))
    assert (status, lines[-1].startswith("unknown: ranks 1-3; no data")) == (1, True)


def test_where_there_is_no_job_it_could_not_be_done(job: pathlib.Path):
    assert main(["diagnose", str(job)]) == 2
    assert main(["diagnose", str(job / "none")]) == 2


def test_a_saved_job_is_kept_and_read_again(job: pathlib.Path, capsys: pytest.CaptureFixture[str]):
    waits = Collective("all_reduce", 7, "default", (0, 1, 2, 3), 64, seconds=9.0)
    for number in range(3):
        leave(job, number, LastWord("terminated", "SIGTERM"), collective=waits)
    before = dataclasses.replace(waits, sequence=6, finished=True)
    leave(job, 3, LastWord("terminated", "SIGTERM"), stack=(LINE,), collective=before)
    saved, page = job.parent / "job.json", job.parent / "job.html"
    status, lines = told(capsys, str(job), "--save", str(saved), "--html", str(page))
    assert status == 1
    assert "ranks 0-2 waited in `all_reduce` number 7 of `default`" in lines[1]
    assert told(capsys, str(saved)) == (status, lines)
    assert isinstance(devwidget.load(saved), devwidget.Cluster)
    assert "<!DOCTYPE html>" in page.read_text(encoding="utf-8")


def test_many_findings_are_ten_lines():
    from devwidget.extras.ranks.rules.over_ranks import judge_cluster

    judged = judge_cluster(faulty())
    many = dataclasses.replace(judged, findings=judged.findings * 9)
    lines = diagnosis_text(many).splitlines()
    assert len(lines) == MOST_LINES
    assert lines[-1].startswith("and ")
