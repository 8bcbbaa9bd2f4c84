"""The callback for Lightning's Trainer, of the package `lightning` as of `pytorch_lightning`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

from devwidget.extras.watch.integrations.trainer_watch import SteppedWatch, WatchOptions
from devwidget.records.errors import is_installed, require_package
from devwidget.records.finding import Severity
from devwidget.records.schema.message import Message

_PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}


def _load_callback() -> Any:
    """The class of callbacks of the package that the program uses, or else of the one that is installed."""
    purpose = Message("`{name}`", name="devwidget.integrations.LightningCallback")
    known = sorted(_PACKAGES, key=lambda package: sys.modules.get(_PACKAGES[package]) is None)
    installed = next(filter(is_installed, known), known[0])
    require_package(installed, purpose)
    return importlib.import_module(_PACKAGES[installed]).Callback


_Callback: Any = _load_callback()


class LightningCallback(_Callback):
    """Watches each `fit`: `Trainer(..., callbacks=[devwidget.integrations.LightningCallback()])`.

    The module and its first optimizer are those that the trainer has when it begins. What the steps take goes to its loggers
    each `log_every_n_steps`; what is found is a warning, at the end of the batch in which it was.

    Args:
        every: as for `devwidget.watch`.
        path: as for `devwidget.watch`.
        fail_on: severities of findings that end the training with a `PlacementError`, such as `"error"`.

    Attributes:
        run: the last training, which prints as a report; None before the first.

    Raises:
        DevwidgetError: if `fail_on` names what is no severity.
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        path: str | os.PathLike[str] | None = None,
        fail_on: Severity | Iterable[Severity] = (),
    ) -> None:
        super().__init__()
        self._options = WatchOptions(every, path, fail_on)
        self.run: SteppedWatch | None = None

    # -- the run

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to watch."""
        self.run = SteppedWatch(pl_module, next(iter(trainer.optimizers), None), self._options)
        self.run.__enter__()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End, and tell what shows at the end only."""
        if self.run is not None:
            self.run.end()
            self.run.tell_findings()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training ends with an error."""
        if self.run is not None:
            self.run.end(exception)

    # -- its steps

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A step begins."""
        if self.run is not None:
            self.run.begin_batch(pl_module, batch)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """It has its loss."""
        if self.run is not None:
            self.run.end_batch(pl_module, loss)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """It has ended: tell the loggers, and what was found."""
        if self.run is None:
            return
        every = trainer.log_every_n_steps
        if trainer.loggers and every and trainer.global_step % every == 0:
            scalars = self.run.take_scalars()
            for logger in trainer.loggers if scalars else ():
                logger.log_metrics(dict(scalars), step=trainer.global_step - 1)  # as what the module logs in this batch
        self.run.tell_findings()

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A pass of evaluation begins."""
        if self.run is not None:
            self.run.begin_batch(pl_module, batch)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """It has ended."""
        if self.run is not None:
            self.run.end_batch(pl_module)
