"""The callback for `transformers.Trainer` and its subclasses."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch import nn

from devwidget.capture.patching.registry import Patch
from devwidget.capture.source_code.stack import locals_of
from devwidget.extras.watch.integrations.trainer_watch import TrainerWatch
from devwidget.records.errors import require_package
from devwidget.records.schema.message import Message

require_package("transformers", Message("`{name}`", name="devwidget.integrations.TransformersCallback"))

from transformers import Trainer, TrainerCallback  # noqa: E402
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK  # noqa: E402

_LOGGERS = tuple(INTEGRATION_TO_CALLBACK.values())
_AROUND = ("_run_epoch", "training_step")
"""An exception in them ends the run, which no callback reports. Older trainers have only the second."""


class TransformersCallback(TrainerWatch, TrainerCallback):
    """Watch each training: `Trainer(..., callbacks=[devwidget.integrations.TransformersCallback()])`.

    Watches the trainer's model and optimizer at the start of training. Times and memory go to its loggers (`report_to`)
    whenever it logs; a finding is a warning at the end of its step. Takes `every` and `path` as `devwidget.watch`;
    `fail_on="error"`, or several severities, ends the training with a `PlacementError`. `run` is the last training, which
    prints as a report; None before the first.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any) -> None:
        self.end_run()
        trainer = _find_trainer(sys._getframe(1))
        around = getattr(trainer, "model_wrapped", model)
        hides_model = isinstance(around, nn.DataParallel) or hasattr(around, "_orig_mod")  # from hooks of its own
        self.begin_run(around if hides_model else model, optimizer)
        for name in _AROUND:
            if hasattr(trainer, name):
                self.undo.enter_context(Patch(trainer, name, self.end_on_error()))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.tell_findings()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **known: Any) -> None:
        # Not to the console, which has one line for each look.
        trainer = _find_trainer(sys._getframe(1))
        scalars = self.take_scalars()
        if trainer is None or not scalars:
            return
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, _LOGGERS):
                callback.on_log(args, state, control, logs=dict(scalars), **known)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.end_run()


def _find_trainer(frame: FrameType | None) -> Any:
    while frame is not None and not isinstance(locals_of(frame).get("self"), Trainer):
        frame = frame.f_back
    return locals_of(frame)["self"] if frame is not None else None
