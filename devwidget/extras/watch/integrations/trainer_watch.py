"""The watch of a trainer: scalars for its loggers; findings as warnings, or as errors that end the training."""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.allowed_findings import parse_severities
from devwidget.capture.object_fields import is_a
from devwidget.capture.undo import Undo
from devwidget.extras.watch.api import name_for_rank
from devwidget.extras.watch.records.run import PARTS
from devwidget.extras.watch.step_hooks import Hook
from devwidget.extras.watch.watch import Watch, read_allocators
from devwidget.language.speaking import say
from devwidget.records.errors import DevwidgetError, PlacementError, require_package
from devwidget.records.finding import Finding, Severity
from devwidget.records.schema.message import Message

FailOn = Severity | Iterable[Severity]


class FindingWarning(UserWarning):
    """A finding while a trainer runs, in the words of the report."""


class TrainerWatch:
    """Watch each training of a trainer; base of the callbacks.

    Args:
        every: As for `devwidget.watch`.
        path: As for `devwidget.watch`.
        fail_on: Severities of findings that end the training with a `PlacementError`, such as `"error"`.

    Attributes:
        run: The last training, which prints as a report; None before the first.
        undo: What ends with it.
    """

    run: Watch | None = None

    def __init__(self, *, every: int | None = None, path: str | os.PathLike[str] | None = None, fail_on: FailOn = ()) -> None:
        super().__init__()
        self._every, self._path = every, path
        self._fail_on = parse_severities((fail_on,) if isinstance(fail_on, str) else fail_on)
        self.undo = Undo()

    def begin_run(self, model: nn.Module, optimizer: Any, *, is_called: bool = True) -> Watch:
        """Start watching a model that the trainer calls, or whose steps it calls, and its innermost optimizer."""
        while (inner := getattr(optimizer, "optimizer", None)) is not None:
            optimizer = inner
        optimizer = optimizer if is_a(optimizer, torch.optim.Optimizer) else None
        self.run = run = Watch(model, optimizer, every=self._every, path=name_for_rank(self._path))
        self._sums, self._told = Counter[str](), 0
        run.is_called, run.listener = is_called, lambda row: self._sums.update(row)
        run.hooks.may_infer = False  # an evaluation may come first
        return run.__enter__()

    def end_run(self, error: BaseException | None = None) -> None:
        """Stop watching, with the error that ended the training, if any. A second call has no effect."""
        self.undo.run_steps()
        if self.run is not None and self.run.inside:
            self.run.__exit__(None, error, getattr(error, "__traceback__", None))
            if error is None:
                self.tell_findings()
                return
            with contextlib.suppress(Warning):  # which must not take the place of the error
                self.tell_findings(raises=False)

    @contextlib.contextmanager
    def end_on_error(self) -> Iterator[None]:
        """End the run if the block raises."""
        try:
            yield
        except BaseException as error:
            self.end_run(error)
            raise

    def take_scalars(self) -> dict[str, float]:
        """Return means of the steps since the last call in seconds, and current bytes, by name; {} without a step."""
        if self.run is None or not self._sums:
            return {}
        sums, self._sums = self._sums, Counter[str]()
        seconds = {f"devwidget/{part}_seconds": sums[part] / sums["count"] / 1e6 for part in PARTS}
        scalars = {"devwidget/step_seconds": sum(seconds.values()), **seconds}
        for name, size in read_allocators().items():
            scalars[f"devwidget/{name.replace(':', '_').replace(' ', '_')}_bytes"] = float(size)
        return scalars | {"devwidget/findings": float(self.run.log.found)}

    def tell_findings(self, *, raises: bool = True) -> None:
        """Warn of new findings at the user's lines, or raise if one has a severity that ends the run."""
        __tracebackhide__ = True
        new, failing = list[tuple[int, Finding]](), []
        if self.run is not None:
            new = self.run.log.list_findings(self._told)
        self._told += len(new)
        for step, finding in new:
            words, line = say("in step {step}: {finding}", step=step, finding=str(finding)), finding.fault or finding.birth
            if raises and finding.severity in self._fail_on:
                failing.append(words)
            elif line is None:
                warnings.warn(words, FindingWarning, stacklevel=3)
            else:
                warnings.warn_explicit(words, FindingWarning, line.file, line.line)
        if failing and self.run is not None:
            failed = PlacementError("\n\n".join(failing))
            failed.run = self.run.result
            raise failed


@contextlib.contextmanager
def watch_accelerator(accelerator: Any, *, log_every: int = 10, **options: Any) -> Iterator[Watch]:
    """Watch a loop with a prepared accelerator: `with devwidget.integrations.watch_accelerator(accelerator) as run:`.

    Times and memory go to its trackers (`log_with`); a finding is a warning at the end of its step.

    Args:
        accelerator: An `accelerate.Accelerator`, after `prepare`; its first model and optimizer are watched.
        log_every: Number of steps between logged ones.
        **options: `every` and `path` as for `devwidget.watch`; `fail_on="error"`, or several severities, ends the loop.

    Raises:
        DevwidgetError: If it has prepared no model, or an entry of `fail_on` is not a severity.
        PlacementError: From `optimizer.step()`, or at the end, for findings in `fail_on`.
    """
    require_package("accelerate", Message("`{name}`", name="devwidget.integrations.watch_accelerator"))
    if not getattr(accelerator, "_models", ()):
        made = "model, optimizer = accelerator.prepare(model, optimizer)"
        raise DevwidgetError(Message("this accelerator has prepared no model"), instead=made)
    watching, steps = TrainerWatch(**options), itertools.count(1)
    with watching.end_on_error():
        run = watching.begin_run(accelerator._models[0], next(iter(accelerator._optimizers), None))

        def end_step(*_: Any) -> None:
            step = next(steps)
            if step % log_every == 0 and accelerator.trackers:
                accelerator.log(watching.take_scalars(), step=step)
            watching.tell_findings()

        if run.optimizer is not None:  # after the hooks of the run, which it registered first
            watching.undo.add_step(run.optimizer.register_step_post_hook(Hook(end_step)).remove)
        yield run
    watching.end_run()
