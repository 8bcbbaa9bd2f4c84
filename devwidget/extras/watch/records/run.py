"""A watched training run: its steps in rows, the steps that were recorded, and what was found."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
        return self.first[-1] + self.count[-1] if self.first else 0


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


COUNTED = ("count", *PARTS, "evaluations", "recorded")
Columns = dict[str, "array[int]"]
"""The same rows while they grow: name -> numbers, `cuda:0 allocated` for those of devices."""
_FOLDS: dict[str, Callable[[Iterable[int]], int]] = {FIRST: min, **dict.fromkeys(COUNTED, sum)}


class StepTable:
    """Rows of a run in columns of fixed size: when they are full, neighbours become one row.

    Attributes:
        columns: all of one length.
        width: steps of a row.
    """

    def __init__(self, most: int = MOST_ROWS) -> None:
        self.columns: Columns = {name: array("q") for name in (FIRST, *COUNTED)}
        self.width = 1
        self._most = most

    def add_step(self, values: Mapping[str, int]) -> None:
        """One step more; what is not said of it is 0."""
        for name in values.keys() - self.columns.keys():
            self.columns[name] = array("q", bytes(8 * len(self.columns[FIRST])))
        count = self.columns["count"]
        if len(count) == self._most and count[-1] >= self.width:
            self.width *= 2
            self.columns = fold_rows(self.columns, 2)
            count = self.columns["count"]
        if count and count[-1] < self.width:
            for name, column in self.columns.items():
                column[-1] = _FOLDS.get(name, max)((column[-1], values.get(name, 0)))
        else:
            for name, column in self.columns.items():
                column.append(values.get(name, 0))

    def take_rows(self, *, whole: bool) -> StepRows:
        """Take the rows out.

        Args:
            whole: leave the last one, if steps are to come into it yet.
        """
        count = self.columns["count"]
        end = len(count) - bool(whole and count and count[-1] < self.width)
        taken = {name: column[:end] for name, column in self.columns.items()}
        for column in self.columns.values():
            del column[:end]
        return make_rows(taken)

    def __len__(self) -> int:
        return len(self.columns[FIRST])

    def make_rows(self) -> StepRows:
        """The rows as a record."""
        return make_rows(self.columns)


def fold_steps(columns: Columns, width: int) -> Columns:
    """Rows of no more than so many steps as rows of just so many, but the last."""
    first = columns[FIRST]
    groups = itertools.groupby(range(len(first)), key=lambda at: (first[at] - first[0]) // width)
    spans = [(found[0], found[-1] + 1) for _, group in groups if (found := list(group))]
    return {
        name: array("q", [_FOLDS.get(name, max)(column[start:end]) for start, end in spans]) for name, column in columns.items()
    }


def fold_rows(columns: Columns, width: int) -> Columns:
    """So many rows in one: times and counts are added, of bytes the most stays."""
    if width == 1:
        return columns
    return {
        name: array("q", [_FOLDS.get(name, max)(column[at : at + width]) for at in range(0, len(column), width)])
        for name, column in columns.items()
    }


def make_rows(columns: Columns) -> StepRows:
    """Columns as a record."""
    devices = sorted({DeviceId.parse(name.partition(" ")[0]) for name in columns if " " in name})
    memory = tuple(WatchedMemory(device, *(tuple(columns[f"{device} {part}"]) for part in MEMORY)) for device in devices)
    rows: dict[str, Any] = {name: tuple(columns[name]) for name in (FIRST, *COUNTED)}
    return StepRows(**rows, memory=memory)


def join_runs(parts: Iterable[WatchedRun]) -> WatchedRun:
    """What a run has written piece by piece, as one; a long one has as many rows as it would have had in memory."""
    pieces, columns = list[WatchedRun](), Columns({FIRST: array("q")})
    for part in parts:
        _add_rows(columns, part.steps)
        pieces.append(replace(part, steps=StepRows()))  # numbers of Python take four times the memory of those in columns
    width = 1
    while len(columns[FIRST]) and columns[FIRST][-1] + columns["count"][-1] - columns[FIRST][0] > MOST_ROWS * width:
        width *= 2
    found = [each for piece in pieces for each in zip(piece.findings, piece.first_steps, strict=True)]
    found.sort(key=lambda each: SEVERITIES.index(each[0].severity))
    return WatchedRun(
        pieces[-1].model if pieces else "",
        make_rows(fold_steps(columns, width)),
        findings=tuple(finding for finding, _ in found),
        first_steps=tuple(step for _, step in found),
        recorded_steps=tuple(step for piece in pieces for step in piece.recorded_steps),
        error=next((piece.error for piece in reversed(pieces) if piece.error), ""),
        not_checked=tuple(dict.fromkeys(note for piece in pieces for note in piece.not_checked)),
        lines=next((piece.lines for piece in reversed(pieces) if piece.lines), ()),
    )


def _add_rows(columns: Columns, rows: StepRows) -> None:
    before = len(columns[FIRST])
    for name, numbers in list_columns(rows):
        if name not in columns:
            columns[name] = array("q", bytes(8 * before))
        columns[name].extend(array("q", numbers))
    for column in columns.values():  # of a device that is not there any more
        column.extend([0] * (len(columns[FIRST]) - len(column)))


def list_columns(rows: StepRows) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A record as columns, each with its name."""
    yield from ((name, getattr(rows, name)) for name in (FIRST, *COUNTED))
    for memory in rows.memory:
        yield from ((f"{memory.device} {part}", getattr(memory, part)) for part in MEMORY)
