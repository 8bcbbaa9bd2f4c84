"""The callback for Lightning's Trainer, of the package `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from devwidget.extras.watch.integrations.trainer_watch import TrainerWatch
from devwidget.records.errors import is_installed, require_package
from devwidget.records.schema.message import Message

_MODULES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
# The package that the program uses, or else the one that is installed.
_package = min(filter(is_installed, _MODULES), key=lambda package: _MODULES[package] not in sys.modules, default="lightning")
require_package(_package, Message("`{name}`", name="devwidget.integrations.LightningCallback"))
_Callback: Any = importlib.import_module(_MODULES[_package]).Callback


class LightningCallback(TrainerWatch, _Callback):
    """Watch each `fit`: `Trainer(..., callbacks=[devwidget.integrations.LightningCallback()])`.

    Watches the module and its first optimizer at the start of training. Times and memory go to the loggers every
    `log_every_n_steps`; a finding is a warning at the end of its batch. Takes `every` and `path` as `devwidget.watch`;
    `fail_on="error"`, or several severities, ends the training with a `PlacementError`. `run` is the last training, which
    prints as a report; None before the first.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.begin_run(pl_module, next(iter(trainer.optimizers), None), is_called=False)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.end_run()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.end_run(exception)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: Any) -> None:
        if self.run is not None:
            self.run.hooks.begin_pass(pl_module, (batch,), {})

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any, *_: Any) -> None:
        if self.run is not None:
            self.run.hooks.end_pass(pl_module, (), loss)

    on_validation_batch_start = on_train_batch_start
    on_validation_batch_end = on_before_backward

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        every = trainer.log_every_n_steps
        if self.run is not None and trainer.loggers and every and trainer.global_step % every == 0:
            scalars = self.take_scalars()
            if scalars:
                for logger in trainer.loggers:
                    logger.log_metrics(dict(scalars), step=trainer.global_step - 1)  # as what the module logs in this batch
        self.tell_findings()
