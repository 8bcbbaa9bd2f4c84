"""The run so far, kept small: rows, findings, and a few recorded steps; optionally written to a file as well.

The file has one record per line with the new part of each field; `devwidget.open` joins them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from devwidget.capture.interrupts import Lock
from devwidget.extras.watch.records.run import RecordedStep, StepTable, WatchedRun
from devwidget.records.errors import error_text
from devwidget.records.finding import Finding
from devwidget.records.schema.message import Message
from devwidget.records.schema.paths import write_text
from devwidget.records.schema.record import dumps
from devwidget.records.trace import Trace
from devwidget.rules.registry import worst_first

MOST_RECORDED = 16
"""Recorded steps that are kept: the first, the last, and those with new findings."""
_NEXT_WRITTEN = 1.2
"""Multiple of the number of the last recorded step in the file, from which the next one is written."""
MOST_FINDINGS = 200
MOST_WAITING = 256
"""Rows per line."""
MOST_SECONDS = 5.0
"""Seconds after which pending rows are written, for readers of the file."""
_LOCK = Lock()
"""A panel reads a run on another thread. Runs are few, so they share one lock."""


class RunLog:
    """Rows, findings and recorded steps. It references nothing live.

    Args:
        path: File that is also written; it is overwritten.

    Attributes:
        error: Text of the exception that ended the run.

    Raises:
        UnwritableError: If the file cannot be written.
    """

    def __init__(self, model: str, path: str | os.PathLike[str] | None = None) -> None:
        self._model = model
        self._path = write_text(path, "", 'devwidget.watch(model, path="watch.jsonl")') if path is not None else None
        self._table = StepTable()
        self._rows_written, self._written = 0, time.perf_counter()
        self._found: dict[tuple[object, ...], tuple[int, Finding]] = {}
        self._recorded: list[RecordedStep] = []
        self._with_news: set[int] = set()
        self._written_recorded = self._last_written = 0
        self._notes: dict[str, None] = {}
        self.error = ""

    @_LOCK
    def add_row(self, row: Mapping[str, int]) -> None:
        """Add the row of a step."""
        self._table.add_step(row)
        is_due = self._table.whole - self._rows_written >= MOST_WAITING or time.perf_counter() - self._written >= MOST_SECONDS
        if self._path is not None and is_due:
            self.write_part()

    def write_part(self, *, ends: bool = False, **news: Any) -> None:
        """Write the pending rows and these fields of a run, if there is a file.

        A write error ends the file, not the run. Writes bypass Python's buffers, so a process that is forked meanwhile, such
        as a loader's worker, has nothing to flush.

        Args:
            ends: Also write the last row if it is incomplete.
        """
        if self._path is None:
            return
        if ends:
            self._table.is_open = False
        start, self._rows_written, self._written = self._rows_written, self._table.whole, time.perf_counter()
        rows = self._table.list_rows(start, self._rows_written)
        if not len(rows) and not any(news.values()):
            return
        line = dumps(WatchedRun(self._model, rows, **news)).encode() + b"\n"
        try:
            with self._path.open("ab", buffering=0) as file:
                file.write(line)
        except OSError as error:
            self._path = None
            self.add_note(Message("{kind}: {reason}", kind=Message("the file of the run"), reason=error_text(error)))

    @_LOCK
    def add_note(self, text: str) -> None:
        """Note what could not be watched, and why."""
        if text not in self._notes and len(self._notes) < MOST_FINDINGS:
            self._notes[text] = None
            self.write_part(not_checked=(text,))

    @_LOCK
    def add_findings(self, step: int, findings: Iterable[Finding]) -> bool:
        """Add findings; return whether one of them is new."""
        new: list[Finding] = []
        for finding in findings:
            place = finding.fault.place if finding.fault is not None else finding.headline
            key = finding.kind, place, finding.module
            if key not in self._found and len(self._found) < MOST_FINDINGS:
                self._found[key] = step, finding
                new.append(finding)
        self.write_part(findings=tuple(new), first_steps=(step,) * len(new))
        return bool(new)

    @_LOCK
    def list_findings(self, told: int = 0) -> list[tuple[int, Finding]]:
        """Return the findings in order, each with its step, without those already read."""
        return list(self._found.values())[told:]

    @_LOCK
    def add_recorded(self, step: RecordedStep) -> None:
        """Add a recorded step."""
        self._recorded.append(step)
        if self.add_findings(step.number, step.trace.findings):
            self._with_news.add(step.number)
        if step.number in self._with_news or self._is_due(step.number):
            self.write_part(recorded_steps=(step,))
        if len(self._recorded) > MOST_RECORDED:
            middle = self._recorded[1:-1]
            self._recorded.remove(next((each for each in middle if each.number not in self._with_news), middle[0]))

    def _is_due(self, number: int) -> bool:
        """Return whether an ordinary recorded step is written to the file: fewer and fewer in a long run."""
        is_due = self._written_recorded < MOST_RECORDED or number >= _NEXT_WRITTEN * self._last_written
        if is_due:
            self._written_recorded, self._last_written = self._written_recorded + 1, number
        return is_due

    @property
    def found(self) -> int:
        """Number of findings so far."""
        return len(self._found)

    @property
    def last_recorded(self) -> tuple[int, Trace] | None:
        """The last recorded step; None before the first."""
        if self._recorded:
            return (self._recorded[-1].number, self._recorded[-1].trace)
        return None

    @_LOCK
    def make_record(self) -> WatchedRun:
        """Return the run as a record."""
        findings = worst_first(finding for _, finding in self._found.values())
        steps = {id(finding): step for step, finding in self._found.values()}
        return WatchedRun(
            model=self._model,
            steps=self._table.make_rows(),
            findings=findings,
            first_steps=tuple(steps[id(finding)] for finding in findings),
            recorded_steps=tuple(self._recorded),
            error=self.error,
            not_checked=tuple(self._notes),
        )
