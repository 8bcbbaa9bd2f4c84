"""Check the fields of a watched run, join the lines of its file, and join the files of a folder."""

from __future__ import annotations

import pathlib
import re

from devwidget.extras.watch.records.job import WatchedJob
from devwidget.extras.watch.records.run import StepRows, WatchedRun, join_runs
from devwidget.records.errors import UnreadableError
from devwidget.records.loading.consistency import Wrong
from devwidget.records.loading.json_io import load, register_join
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.message import Message

register_join("WatchedRun", join_runs)


@register_check(StepRows)
def _check_columns(rows: StepRows) -> Wrong:
    """Check that all columns have one number per row, of at most 63 bits."""
    for name, numbers in rows.columns.items():
        if len(numbers) != len(rows):
            yield name, Message("one number for each row")
        elif max(numbers, default=0) >= 2**62:
            yield name, Message("numbers below 2**62")


@register_check(WatchedJob)
def _check_ranks(job: WatchedJob) -> Wrong:
    if len(job.ranks) != len(job.runs) or len(set(job.ranks)) != len(job.ranks):
        yield "ranks", Message("one for each run")


@register_check(WatchedRun)
def _check_first_steps(run: WatchedRun) -> Wrong:
    if len(run.first_steps) != len(run.findings):
        yield "first_steps", Message("one number for each finding")


_RUN_OF_RANK = re.compile(r"\.rank-(\d{1,7})\.jsonl$")


def read_folder(folder: pathlib.Path) -> WatchedJob | None:
    """Read the runs of ranks in a folder as one job; None without any."""
    found = sorted((int(named[1]), file) for file in folder.iterdir() if (named := _RUN_OF_RANK.search(file.name)))
    if not found:
        return None
    return WatchedJob(tuple(rank for rank, _ in found), tuple(_load_run(file) for _, file in found))


def _load_run(file: pathlib.Path) -> WatchedRun:
    run = load(file)
    if not isinstance(run, WatchedRun):
        raise UnreadableError(Message("{name} is not a watched run", name=file.name))
    return run
