"""Answers to `what if`: the largest batch that fits, and what would make a step smaller."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.schema.bounds import Size
from devwidget.records.schema.record import Record


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """One plan that was run.

    Attributes:
        size: samples of the batch.
        on_card: the most that a GPU takes, in bytes.
        fits: whether every GPU has room.
    """

    size: int
    on_card: Size
    fits: bool


@dataclass(frozen=True, slots=True)
class LargestBatch(Record):
    """The largest batch that fits.

    Attributes:
        model: class of the model.
        size: samples; 0 if not even one fits.
        on_card: the most that a GPU takes with it, or with one sample if that does not fit, in bytes.
        capacity: of that GPU.
        runs: the plans that were run, in their order; the answer and the next larger batch are among them.
    """

    model: str
    size: int
    on_card: Size
    capacity: Size
    runs: tuple[PlannedSize, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that could be done, planned in full.

    Attributes:
        what: in words, such as `activation checkpointing`.
        code: what to write.
        cost: what is paid for it, in words.
        on_card: the most that a GPU then takes, in bytes.
        saved: bytes less than without it, on the GPU that takes most.
        fits: whether every GPU then has room.
        problem: why the step fails with it; "" if it runs.
    """

    what: str
    code: str
    cost: str
    on_card: Size
    saved: int
    fits: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Changes(Record):
    """What would make a step smaller.

    Attributes:
        model: class of the model.
        on_card: the most that a GPU takes without a change, in bytes.
        changes: first those that fit, the cheapest first; then those that do not, by what they save.
    """

    model: str
    on_card: Size
    changes: tuple[Change, ...]

    @property
    def cheapest(self) -> Change | None:
        """The cheapest change with which the step fits; None if there is none."""
        return next((change for change in self.changes if change.fits), None)
