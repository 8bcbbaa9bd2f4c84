"""A run in a file that grows while it goes on: one record a line, each of what is new; `devwidget.open` joins them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from devwidget.records.schema.paths import write_text
from devwidget.records.schema.record import dumps
from devwidget.records.watch import StepTable, WatchedRun

MOST_WAITING = 256
"""Rows of a line; a million steps take some thousand lines."""
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
        self._waiting = StepTable(MOST_WAITING)
        self._written = time.perf_counter()

    def add_row(self, row: Mapping[str, int]) -> None:
        """A step has ended."""
        self._waiting.add_step(row)
        if len(self._waiting) >= MOST_WAITING or time.perf_counter() - self._written >= MOST_SECONDS:
            self.write_part()

    def write_part(self, **news: Any) -> None:
        """Write the rows that wait, and these fields of a run."""
        if not len(self._waiting) and not any(news.values()):
            return
        rows, self._waiting, self._written = self._waiting.make_rows(), StepTable(MOST_WAITING), time.perf_counter()
        line = dumps(WatchedRun(self._model, rows, **news)).encode() + b"\n"
        with self._path.open("ab", buffering=0) as file:
            file.write(line)
