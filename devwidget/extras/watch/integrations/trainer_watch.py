"""A watch that a trainer begins and ends: scalars for its loggers, and findings as warnings, or as what ends the run."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import nn

from devwidget.allowed_findings import parse_severities
from devwidget.capture.object_fields import is_a
from devwidget.extras.watch.api import name_for_rank
from devwidget.extras.watch.records.run import MEMORY, PARTS
from devwidget.extras.watch.step_hooks import PassesOfTrainer
from devwidget.extras.watch.watch import Watch
from devwidget.language.speaking import say
from devwidget.records.errors import PlacementError
from devwidget.records.finding import Finding, Severity

PREFIX = "devwidget/"
"""Of all names of scalars."""


class FindingWarning(UserWarning):
    """Something that was found while a trainer runs, in the words of the report."""


class StepScalars:
    """What the steps since the last look took, on average, and what each device holds now."""

    def __init__(self) -> None:
        self._steps = 0
        self._microseconds = dict.fromkeys(PARTS, 0)
        self._bytes: dict[str, int] = {}

    def add_row(self, row: Mapping[str, int]) -> None:
        """A step has ended."""
        self._steps += 1
        for part in PARTS:
            self._microseconds[part] += row.get(part, 0)
        self._bytes.update({name: size for name, size in row.items() if name.partition(" ")[2] in MEMORY})

    def take_values(self) -> dict[str, float]:
        """Seconds of a step and of its parts, and bytes; {} if none has ended since."""
        if not self._steps:
            return {}
        seconds = {part: total / self._steps / 1e6 for part, total in self._microseconds.items()}
        values: dict[str, float] = {f"{PREFIX}step_seconds": sum(seconds.values())}
        values |= {f"{PREFIX}{part}_seconds": each for part, each in seconds.items()}
        values |= {f"{PREFIX}{_scalar_name(name)}_bytes": float(size) for name, size in self._bytes.items()}
        self._steps, self._microseconds = 0, dict.fromkeys(PARTS, 0)
        return values


def _scalar_name(name: str) -> str:
    """`cuda:0 allocated` in letters that every logger takes."""
    return name.replace(":", "_").replace(" ", "_")


class WatchOptions:
    """How a trainer is watched, as the user says it where there is no model yet.

    Args:
        every: as for `devwidget.watch`.
        path: as for `devwidget.watch`.
        fail_on: severities of findings that end the run.

    Raises:
        DevwidgetError: if `fail_on` names what is no severity.
    """

    def __init__(self, every: int | None, path: str | os.PathLike[str] | None, fail_on: Severity | Iterable[Severity]) -> None:
        self.every, self.path = every, path
        self.fail_on = parse_severities((fail_on,) if isinstance(fail_on, str) else fail_on)


class TrainerWatch(Watch):
    """A run that a trainer begins and ends; see `Watch` for what it has.

    Args:
        model: the root.
        optimizer: its optimizer, as the trainer has wrapped it.
        options: how.
    """

    def __init__(self, model: nn.Module, optimizer: object, options: WatchOptions) -> None:
        super().__init__(model, unwrap_optimizer(optimizer), every=options.every, path=name_for_rank(options.path))
        self._fail_on: Collection[Severity] = options.fail_on
        self._scalars = StepScalars()
        self._told = 0
        self.listener = lambda row, _: self._scalars.add_row(row)

    def take_scalars(self) -> dict[str, float]:
        """What the trainer's loggers are told of the steps since they were last told, by name; {} if there was none."""
        values = self._scalars.take_values()
        return values | {f"{PREFIX}findings": float(self._log.found)} if values else {}

    def tell_findings(self) -> None:
        """Warn of what was found since the last time.

        Raises:
            PlacementError: if some of it is of a severity that ends the run.
        """
        __tracebackhide__ = True
        new = self._take_news()
        failing = [_told_words(step, finding) for step, finding in new if finding.severity in self._fail_on]
        _warn_at_lines((step, finding) for step, finding in new if finding.severity not in self._fail_on)
        if failing:
            failed = PlacementError("\n\n".join(failing))
            failed.run = self.result
            raise failed

    def _take_news(self) -> list[tuple[int, Finding]]:
        new = self._log.list_findings(self._told)
        self._told += len(new)
        return new

    def _finish(self, error: BaseException | None, trace: TracebackType | None) -> None:
        super()._finish(error, trace)
        if error is not None:  # which the program is about to tell: a warning must not take its place
            with contextlib.suppress(Warning):
                _warn_at_lines(self._take_news())

    def end(self, error: BaseException | None = None) -> None:
        """The trainer has ended, or is about to end with this error; a second time does nothing."""
        if self.inside:
            self.__exit__(type(error) if error is not None else None, error, error.__traceback__ if error is not None else None)


class SteppedWatch(TrainerWatch):
    """A run whose trainer calls no module, but steps of one, and tells when each begins and ends."""

    hooks_kind = PassesOfTrainer

    def begin_batch(self, model: nn.Module, batch: Any) -> None:
        """A step of training or of evaluation begins with this batch."""
        self._hooks.begin_pass(model, (batch,), {})

    def end_batch(self, model: nn.Module, output: Any = None) -> None:
        """It has given its loss, or what it has else."""
        self._hooks.end_pass(model, (), output)


def unwrap_optimizer(optimizer: object) -> torch.optim.Optimizer | None:
    """The optimizer of torch inside of those that trainers put around it; None if there is none."""
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return optimizer if is_a(optimizer, torch.optim.Optimizer) else None


def _told_words(step: int, finding: Finding) -> str:
    return say("in step {step}: {finding}", step=step, finding=str(finding))


def _warn_at_lines(found: Iterable[tuple[int, Finding]]) -> None:
    """Warnings of the user's lines, wherever they are noticed."""
    for step, finding in found:
        words, line = _told_words(step, finding), finding.fault or finding.birth
        if line is None:
            warnings.warn(words, FindingWarning, stacklevel=3)
        else:
            warnings.warn_explicit(words, FindingWarning, line.file, line.line)
