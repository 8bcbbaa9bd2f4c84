"""A watched training run: rows of steps, recorded steps, and findings."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.finding import SEVERITIES, Finding
from devwidget.records.loading.consistency import Wrong
from devwidget.records.loading.json_io import register_join
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.fields import Size
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import Record
from devwidget.records.trace import Trace

PARTS = ("data", "forward", "loss", "backward", "optimizer", "evaluation", "other")
"""Parts of a step's time, in drawing order."""
MEMORY = ("allocated", "reserved", "peak")
MOST_ROWS = 4096
"""Rows that are kept of a run of any length; a screen has a few thousand columns."""
FIRST = "first"
COUNTED = ("count", *PARTS, "evaluations", "recorded")
_FOLDS: dict[str, Callable[[Iterable[int]], int]] = {FIRST: min, **dict.fromkeys(COUNTED, sum)}
"""How the numbers of a column are combined; bytes keep their maximum."""


@dataclass(frozen=True, slots=True)
class WatchedMemory:
    """Memory of one device in bytes, row by row.

    Attributes:
        device: The device.
        allocated: Maximum that was allocated at the end of a step.
        reserved: Maximum that the allocator reserved then.
        peak: The allocator's own peak then, since the program last reset it.
    """

    device: DeviceId
    allocated: tuple[Size, ...]
    reserved: tuple[Size, ...]
    peak: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class StepRows:
    """Steps in rows. Times are host times in microseconds, added up over the steps of a row.

    Attributes:
        first: Number of the first step of each row; steps count from 0.
        count: Steps of the row.
        data: From the end of the previous step to the forward pass: the loader and other code.
        forward: Forward passes of the model.
        loss: From the end of a forward pass until gradients reach the output of the model.
        backward: From there to the end of backward.
        optimizer: The optimizer's step.
        evaluation: Passes without gradients or of a model in `eval()`, and the time before each.
        other: Between backward and the optimizer's step; for a compiled model all unobserved time.
        evaluations: Number of such passes.
        recorded: Recorded steps, which take longer.
        memory: One for each device with an allocator.
    """

    first: tuple[Size, ...] = ()
    count: tuple[Size, ...] = ()
    data: tuple[Size, ...] = ()
    forward: tuple[Size, ...] = ()
    loss: tuple[Size, ...] = ()
    backward: tuple[Size, ...] = ()
    optimizer: tuple[Size, ...] = ()
    evaluation: tuple[Size, ...] = ()
    other: tuple[Size, ...] = ()
    evaluations: tuple[Size, ...] = ()
    recorded: tuple[Size, ...] = ()
    memory: tuple[WatchedMemory, ...] = ()

    def __len__(self) -> int:
        return len(self.first)

    @property
    def total(self) -> int:
        """Number of steps."""
        return self.first[-1] + self.count[-1] if self.first else 0

    @property
    def columns(self) -> dict[str, tuple[int, ...]]:
        """Return the numbers of all rows by name, such as `cuda:0 allocated` for devices."""
        found = {name: getattr(self, name) for name in (FIRST, *COUNTED)}
        for memory in self.memory:
            found |= {f"{memory.device} {part}": getattr(memory, part) for part in MEMORY}
        return found


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A recorded step.

    Attributes:
        number: Number of the step.
        reason: Why it was recorded.
        trace: Its trace.
    """

    number: Size
    reason: str
    trace: Trace


@dataclass(frozen=True, slots=True)
class WatchedRun(Record):
    """A watched training run.

    Attributes:
        model: Class of the model.
        steps: Times and memory of each step; in a long run a row has several steps.
        findings: Findings, worst first.
        first_steps: For each finding, the number of the step in which it was first seen.
        recorded_steps: Recorded steps in order.
        error: `ErrorType: message` of the exception that ended it, "" if none did.
        not_checked: What could not be watched, with reasons.
    """

    model: str
    steps: StepRows
    findings: tuple[Finding, ...] = ()
    first_steps: tuple[Size, ...] = ()
    recorded_steps: tuple[RecordedStep, ...] = ()
    error: str = ""
    not_checked: tuple[str, ...] = ()

    @property
    def recorded(self) -> dict[int, Trace]:
        """Traces of the recorded steps, by number."""
        return {step.number: step.trace for step in self.recorded_steps}


class StepTable:
    """The rows of a growing run: first one step each, later more; the last is open. A million steps have 20,000."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in (FIRST, *COUNTED)}
        self._steps, self._width, self.is_open = 0, 1, False

    def __len__(self) -> int:
        return len(self._columns[FIRST])

    @property
    def whole(self) -> int:
        """Number of complete rows."""
        return len(self) - self.is_open

    def add_step(self, row: Mapping[str, int]) -> None:
        """Add one step; missing values are 0."""
        self._add_columns(row)
        if self.is_open:
            for name, column in self._columns.items():
                column[-1] = _FOLDS.get(name, max)((column[-1], row.get(name, 0)))
        else:
            if self._steps >= MOST_ROWS * self._width:
                self._width *= 2
            for name, column in self._columns.items():
                column.append(row.get(name, 0))
        self._steps += 1
        self.is_open = self._columns["count"][-1] < self._width

    def add_rows(self, rows: StepRows) -> None:
        """Add the next rows of another table."""
        columns = rows.columns
        self._add_columns(columns)
        for name, column in self._columns.items():
            column.extend(columns.get(name) or [0] * len(rows))

    def _add_columns(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._columns:
                self._columns[name] = array("q", bytes(8 * len(self)))

    def list_rows(self, start: int, end: int) -> StepRows:
        """Return some of the rows unchanged."""
        return _make_rows({name: column[start:end] for name, column in self._columns.items()})

    def make_rows(self) -> StepRows:
        """Return the rows that are kept of a run, each of as many steps, except the last."""
        return fold_rows(self.list_rows(0, len(self)), MOST_ROWS)


def fold_rows(rows: StepRows, most: int) -> StepRows:
    """Return the same steps in at most this many rows, each of as many steps, except the last."""
    width = 1
    while len(rows) and rows.total - rows.first[0] > most * width:
        width *= 2
    groups = itertools.groupby(range(len(rows)), key=lambda at: (rows.first[at] - rows.first[0]) // width)
    starts = [next(group) for _, group in groups]
    if len(starts) == len(rows):
        return rows
    spans = list(zip(starts, [*starts[1:], len(rows)], strict=True))
    folds = {name: _FOLDS.get(name, max) for name in rows.columns}
    return _make_rows({name: [folds[name](column[a:b]) for a, b in spans] for name, column in rows.columns.items()})


def _make_rows(columns: Mapping[str, Sequence[int]]) -> StepRows:
    devices = sorted({DeviceId.parse(name.partition(" ")[0]) for name in columns if " " in name})
    memory = tuple(WatchedMemory(device, *(tuple(columns[f"{device} {part}"]) for part in MEMORY)) for device in devices)
    rows: dict[str, Any] = {name: tuple(columns[name]) for name in (FIRST, *COUNTED)}
    return StepRows(**rows, memory=memory)


def join_runs(parts: Iterable[WatchedRun]) -> WatchedRun:
    """Join the parts that a run wrote. A long one has as many rows as it would have in memory."""
    table, found, recorded = StepTable(), list[tuple[Finding, int]](), list[RecordedStep]()
    notes, model, error = dict[str, None](), "", ""
    for part in parts:
        table.add_rows(part.steps)
        found += zip(part.findings, part.first_steps, strict=True)
        recorded += part.recorded_steps
        notes |= dict.fromkeys(part.not_checked)
        model, error = part.model, part.error or error
    found.sort(key=lambda each: SEVERITIES.index(each[0].severity))
    return WatchedRun(
        model,
        table.make_rows(),
        findings=tuple(finding for finding, _ in found),
        first_steps=tuple(step for _, step in found),
        recorded_steps=tuple(recorded),
        error=error,
        not_checked=tuple(notes),
    )


register_join("WatchedRun", join_runs)


@register_check(StepRows)
def _check_columns(rows: StepRows) -> Wrong:
    for name, numbers in rows.columns.items():
        if len(numbers) != len(rows):
            yield name, Message("one number for each row")
        elif max(numbers, default=0) >= 2**62:
            yield name, Message("numbers below 2**62")


@register_check(WatchedRun)
def _check_first_steps(run: WatchedRun) -> Wrong:
    if len(run.first_steps) != len(run.findings):
        yield "first_steps", Message("one number for each finding")
