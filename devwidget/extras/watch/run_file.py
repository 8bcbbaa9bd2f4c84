"""A run in a file that grows while it goes on: one record a line, each of what is new; `devwidget.open` joins them.

What is written stays, so the rows become longer in time: as many steps make a row as would in memory. A million steps take
20,000 rows in all, which open at once.
"""

from __future__ import annotations

import os
import pathlib
import re
import time
from collections.abc import Mapping
from typing import Any

from devwidget.extras.watch.records.job import WatchedJob
from devwidget.extras.watch.records.run import MOST_ROWS, StepTable, WatchedRun
from devwidget.records.errors import UnreadableError
from devwidget.records.loading import json_io
from devwidget.records.schema.message import Message
from devwidget.records.schema.paths import write_text
from devwidget.records.schema.record import dumps

MOST_WAITING = 256
"""Rows of a line."""
MOST_SECONDS = 5.0
"""After which the rows that wait are written, for who follows the file."""


class RunFile:
    """The file of one run, of one process.

    It is written past Python's buffers: a process that is forked meanwhile, by a loader for one, has nothing of ours to write.

    Args:
        path: what was there before is gone.
        model: its class.

    Raises:
        UnwritableError: if it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], model: str) -> None:
        self._path, self._model = write_text(path, "", 'devwidget.watch(model, path="watch.jsonl")'), model
        self._waiting, self._steps = StepTable(MOST_WAITING + 1), 0
        self._written = time.perf_counter()

    def add_row(self, row: Mapping[str, int]) -> None:
        """A step has ended."""
        if self._steps >= MOST_ROWS * self._waiting.width:
            self.write_part()  # rows that are whole, and would be made longer
            self._waiting.width *= 2
        self._waiting.add_step(row)
        self._steps += 1
        if len(self._waiting) >= MOST_WAITING or time.perf_counter() - self._written >= MOST_SECONDS:
            self.write_part()

    def write_part(self, *, ends: bool = False, **news: Any) -> None:
        """Write the rows that wait, and these fields of a run.

        Args:
            ends: the last row too, if it is not whole.
        """
        rows, self._written = self._waiting.take_rows(whole=not ends), time.perf_counter()
        if not len(rows) and not any(news.values()):
            return
        line = dumps(WatchedRun(self._model, rows, **news)).encode() + b"\n"
        with self._path.open("ab", buffering=0) as file:
            file.write(line)


_RUN_OF_RANK = re.compile(r"\.rank-(\d{1,7})\.jsonl$")


def read_folder(folder: pathlib.Path) -> WatchedJob | None:
    """Read the runs of ranks in a folder as one job; None without any."""
    runs = {int(named[1]): file for file in folder.iterdir() if (named := _RUN_OF_RANK.search(file.name))}
    if not runs:
        return None
    found = sorted(runs.items())
    return WatchedJob(tuple(rank for rank, _ in found), tuple(_load_run(file) for _, file in found))


def _load_run(file: pathlib.Path) -> WatchedRun:
    run = json_io.load(file)
    if not isinstance(run, WatchedRun):
        raise UnreadableError(Message("{name} is no watched run", name=file.name))
    return run
