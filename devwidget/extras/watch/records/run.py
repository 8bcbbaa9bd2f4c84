"""A watched training run: its steps in rows, the steps that were recorded, and what was found."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devwidget.records.device import DeviceId
from devwidget.records.finding import SEVERITIES, Finding
from devwidget.records.schema.fields import Size
from devwidget.records.schema.record import Record
from devwidget.records.site import Site
from devwidget.records.trace import Trace

PARTS = ("data", "forward", "loss", "backward", "optimizer", "evaluation", "other")
"""The parts of the time of a step, in the order in which they are drawn."""
MEMORY = ("allocated", "reserved", "peak")
MOST_ROWS = 4096
"""Kept of a run, however long it is: a screen has some thousand columns."""
FIRST = "first"
COUNTED = ("count", *PARTS, "evaluations", "recorded")
_FOLDS: dict[str, Callable[[Iterable[int]], int]] = {FIRST: min, **dict.fromkeys(COUNTED, sum)}
"""How several numbers of a column become one; of bytes the most stays."""


@dataclass(frozen=True, slots=True)
class WatchedMemory:
    """One device, in bytes, row by row.

    Attributes:
        device: which.
        allocated: the most that was allocated at the end of a step.
        reserved: the most that the allocator held then.
        peak: the allocator's own highest figure then, since the program last reset it.
    """

    device: DeviceId
    allocated: tuple[Size, ...]
    reserved: tuple[Size, ...]
    peak: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class StepRows:
    """Steps in rows. Times are those of the host, in microseconds, added up over the steps of a row.

    Attributes:
        first: number of the first step of each row; steps count from 0.
        count: steps of the row.
        data: from the end of the step before to the forward pass: the loader, and all else that happens there.
        forward: the model's forward passes.
        loss: from the end of a forward pass to the moment when gradients reach the output of the model.
        backward: from there to the end of backward.
        optimizer: the optimizer's step.
        evaluation: passes without gradients or of a model in `eval()`, and the time before each.
        other: between backward and the optimizer's step; all that nobody saw, where the model runs compiled.
        evaluations: such passes.
        recorded: steps that were recorded, whose times are longer for that.
        memory: one for each device whose allocator can be asked.
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
        """How many steps there were."""
        if self.first:
            return self.first[-1] + self.count[-1]
        return 0

    @property
    def columns(self) -> dict[str, tuple[int, ...]]:
        """The numbers of all rows by name, `cuda:0 allocated` for those of devices."""
        found = {name: getattr(self, name) for name in (FIRST, *COUNTED)}
        for memory in self.memory:
            found |= {f"{memory.device} {part}": getattr(memory, part) for part in MEMORY}
        return found


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step that was recorded.

    Attributes:
        number: of the step.
        reason: why it was.
        trace: what was seen.
    """

    number: Size
    reason: str
    trace: Trace


@dataclass(frozen=True, slots=True)
class LineTime:
    """A line at which the steps that were looked into spend their time.

    Attributes:
        part: of the step.
        site: where the program stands meanwhile.
        seconds: of a step, on average.
    """

    part: str
    site: Site
    seconds: float


@dataclass(frozen=True, slots=True)
class WatchedRun(Record):
    """A training run under watch.

    Attributes:
        model: its class.
        steps: what each took; in a long run several in each row.
        findings: what was found, worst first.
        first_steps: of each finding, the number of the step in which it was first seen.
        recorded_steps: in order.
        error: `ErrorType: message` of the exception that ended it, "" if none did.
        not_checked: what could not be watched, each with its reason.
        lines: where the last steps that were looked into spent their time, by part, most first: in a job of several ranks
            those after the first recorded one, else those that had become slow.
    """

    model: str
    steps: StepRows
    findings: tuple[Finding, ...] = ()
    first_steps: tuple[Size, ...] = ()
    recorded_steps: tuple[RecordedStep, ...] = ()
    error: str = ""
    not_checked: tuple[str, ...] = ()
    lines: tuple[LineTime, ...] = ()

    @property
    def recorded(self) -> dict[int, Trace]:
        """The traces of the recorded steps, by number."""
        return {step.number: step.trace for step in self.recorded_steps}


class StepTable:
    """The rows of a run while it goes on: each of one step at first, of ever more later, 20,000 for a million steps."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in (FIRST, *COUNTED)}
        self._steps, self._width, self._is_open = 0, 1, False

    def __len__(self) -> int:
        return len(self._columns[FIRST])

    @property
    def whole(self) -> int:
        """How many rows there are that no step comes into any more."""
        return len(self) - self._is_open

    def close_row(self) -> None:
        """Let no step come into the last row any more."""
        self._is_open = False

    def add_step(self, row: Mapping[str, int]) -> None:
        """One step more; what is not said of it is 0."""
        self._add_columns(row)
        if self._is_open:
            for name, column in self._columns.items():
                column[-1] = _FOLDS.get(name, max)((column[-1], row.get(name, 0)))
        else:
            if self._steps >= MOST_ROWS * self._width:
                self._width *= 2
            for name, column in self._columns.items():
                column.append(row.get(name, 0))
        self._steps += 1
        self._is_open = self._columns["count"][-1] < self._width

    def add_rows(self, rows: StepRows) -> None:
        """The next rows of another table."""
        columns = rows.columns
        self._add_columns(columns)
        for name, column in self._columns.items():
            column.extend(columns.get(name) or [0] * len(rows))

    def _add_columns(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._columns:
                self._columns[name] = array("q", bytes(8 * len(self)))

    def list_rows(self, start: int, end: int) -> StepRows:
        """Some of the rows as they are."""
        return _make_rows({name: column[start:end] for name, column in self._columns.items()})

    def make_rows(self) -> StepRows:
        """As many rows as are kept of a run, all of as many steps, but the last."""
        return fold_rows(self.list_rows(0, len(self)), MOST_ROWS)


def fold_rows(rows: StepRows, most: int) -> StepRows:
    """The same steps in at most so many rows, all of as many steps, but the last."""
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
    """What a run has written piece by piece, as one; a long one has as many rows as it would have had in memory."""
    table, found, recorded = StepTable(), list[tuple[Finding, int]](), list[RecordedStep]()
    notes, model, error, lines = dict[str, None](), "", "", tuple[LineTime, ...]()
    for part in parts:
        table.add_rows(part.steps)
        found += zip(part.findings, part.first_steps, strict=True)
        recorded += part.recorded_steps
        notes |= dict.fromkeys(part.not_checked)
        model, error, lines = part.model, part.error or error, part.lines or lines
    found.sort(key=lambda each: SEVERITIES.index(each[0].severity))
    return WatchedRun(
        model,
        table.make_rows(),
        findings=tuple(finding for finding, _ in found),
        first_steps=tuple(step for _, step in found),
        recorded_steps=tuple(recorded),
        error=error,
        not_checked=tuple(notes),
        lines=lines,
    )
