"""The watch for a loop of one's own with `accelerate`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from devwidget.capture.undo import Undo
from devwidget.extras.watch.integrations.trainer_watch import TrainerWatch, WatchOptions, unwrap_optimizer
from devwidget.extras.watch.step_hooks import Hook
from devwidget.records.errors import DevwidgetError, require_package
from devwidget.records.finding import Severity
from devwidget.records.schema.message import Message

LOG_EVERY = 10


@contextmanager
def watch_accelerator(
    accelerator: Any,
    *,
    log_every: int = LOG_EVERY,
    every: int | None = None,
    path: str | os.PathLike[str] | None = None,
    fail_on: Severity | Iterable[Severity] = (),
) -> Iterator[TrainerWatch]:
    """Watch a loop with what an accelerator has prepared: `with devwidget.integrations.watch_accelerator(accelerator) as run:`.

    What the steps take goes to its trackers (`log_with`); what is found is a warning, at the end of the step in which it was.

    Args:
        accelerator: an `accelerate.Accelerator`, after `prepare`; its first model and optimizer are watched.
        log_every: how many steps lie between two that are logged.
        every: as for `devwidget.watch`.
        path: as for `devwidget.watch`.
        fail_on: severities of findings that end the loop with a `PlacementError`, such as `"error"`.

    Raises:
        DevwidgetError: if it has prepared no model, or `fail_on` names what is no severity.
        PlacementError: from `optimizer.step()`, or at the end, for what `fail_on` names.
    """
    require_package("accelerate", Message("`{name}`", name="devwidget.integrations.watch_accelerator"))
    model, optimizer = _find_prepared(accelerator)
    run = TrainerWatch(model, optimizer, WatchOptions(every, path, fail_on))
    steps = _Steps(accelerator, run, log_every)
    with Undo() as undo:
        with run:
            if optimizer is not None:  # after the hooks of the run, which it registered first
                undo.add_step(optimizer.register_step_post_hook(Hook(steps.end_step)).remove)
            yield run
        run.tell_findings()


class _Steps:
    """What is told after each step."""

    def __init__(self, accelerator: Any, run: TrainerWatch, log_every: int) -> None:
        self._accelerator, self._run, self._log_every = accelerator, run, log_every
        self._number = 0

    def end_step(self, *_: Any) -> None:
        """The optimizer has stepped."""
        self._number += 1
        if self._number % self._log_every == 0 and self._accelerator.trackers:
            self._accelerator.log(self._run.take_scalars(), step=self._number)
        self._run.tell_findings()


def _find_prepared(accelerator: Any) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    models, optimizers = getattr(accelerator, "_models", ()), getattr(accelerator, "_optimizers", ())
    if not models:
        raise DevwidgetError(
            Message("this accelerator has no model to watch"),
            instead="model, optimizer = accelerator.prepare(model, optimizer)",
        )
    return models[0], unwrap_optimizer(next(iter(optimizers), None))
