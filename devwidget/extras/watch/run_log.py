"""What was seen of a run so far, kept small: rows, findings, and a few recorded steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from devwidget.capture.interrupts import Lock
from devwidget.extras.watch.records.run import LineTime, RecordedStep, StepTable, WatchedRun
from devwidget.extras.watch.run_file import RunFile
from devwidget.records.errors import error_text
from devwidget.records.finding import Finding
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace
from devwidget.rules.registry import worst_first

MOST_RECORDED = 16
"""Recorded steps kept: the first, the last, and those in which something new was found."""
_NEXT_WRITTEN = 1.2
"""Times the number of the last recorded step in the file, from which on the next is written there."""
MOST_FINDINGS = 200
_LOCK = Lock()
"""A panel asks on a thread of its own how a run goes; there are not so many runs at once that they need one each."""


class RunLog:
    """Rows, findings and recorded steps; nothing in it is live.

    Args:
        model: its class.
        path: where all of it is written, too.

    Attributes:
        error: the exception that ended the run, in words.
    """

    def __init__(self, model: str, path: str | os.PathLike[str] | None = None) -> None:
        self._model = model
        self._file = RunFile(path, model) if path is not None else None
        self._table = StepTable()
        self._found: dict[tuple[object, ...], tuple[int, Finding]] = {}
        self._recorded: list[RecordedStep] = []
        self._with_news: set[int] = set()
        self._written_recorded = self._last_written = 0
        self._notes: dict[str, None] = {}
        self._lines: tuple[LineTime, ...] = ()
        self.error = ""

    @_LOCK
    def add_row(self, row: Mapping[str, int]) -> None:
        """A step has ended."""
        self._table.add_step(row)
        if self._file is not None:
            self._write(self._file.add_row, row)

    def write_part(self, **news: object) -> None:
        """Write the rows that wait, and these fields of a run, if there is a file."""
        if self._file is not None:
            self._write(self._file.write_part, **news)

    def _write(self, write: Callable[..., None], *args: object, **news: object) -> None:
        """A file that cannot be written ends the file, and not the run."""
        try:
            write(*args, **news)
        except OSError as error:
            self._file = None
            self.add_note(Message("{kind}: {reason}", kind=Message("the file of the run"), reason=error_text(error)))

    @_LOCK
    def add_note(self, text: str) -> None:
        """What could not be watched, and why."""
        if text not in self._notes and len(self._notes) < MOST_FINDINGS:
            self._notes[text] = None
            self.write_part(not_checked=(text,))

    @_LOCK
    def set_lines(self, lines: Iterable[LineTime]) -> None:
        """Where the last steps that were looked into have spent their time."""
        self._lines = tuple(lines)
        self.write_part(lines=self._lines)

    @_LOCK
    def add_findings(self, step: int, findings: Iterable[Finding]) -> bool:
        """What was found in a step, or in the rows up to it; whether any of it is new."""
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
        """What was found, in the order in which it was, each with its step, but for so many that are told already."""
        return list(self._found.values())[told:]

    @_LOCK
    def add_recorded(self, step: RecordedStep) -> None:
        """A step was recorded."""
        self._recorded.append(step)
        if self.add_findings(step.number, step.trace.findings):
            self._with_news.add(step.number)
        if step.number in self._with_news or self._is_due(step.number):
            self.write_part(recorded_steps=(step,))
        if len(self._recorded) > MOST_RECORDED:
            middle = self._recorded[1:-1]
            self._recorded.remove(next((each for each in middle if each.number not in self._with_news), middle[0]))

    def _is_due(self, number: int) -> bool:
        """Whether a recorded step of no news goes to the file, which keeps it: ever fewer of them, however long a run is."""
        is_due = self._written_recorded < MOST_RECORDED or number >= _NEXT_WRITTEN * self._last_written
        if is_due:
            self._written_recorded, self._last_written = self._written_recorded + 1, number
        return is_due

    @property
    def found(self) -> int:
        """How many findings there are so far."""
        return len(self._found)

    @property
    def last_recorded(self) -> tuple[int, Trace] | None:
        """The last step that was recorded; None before the first."""
        return (self._recorded[-1].number, self._recorded[-1].trace) if self._recorded else None

    def explains(self, place: tuple[object, ...]) -> bool:
        """Whether a finding is about this line already."""
        return any(finding.fault is not None and finding.fault.place == place for _, finding in self._found.values())

    @_LOCK
    def make_record(self) -> WatchedRun:
        """All of it as a record."""
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
            lines=self._lines,
        )
