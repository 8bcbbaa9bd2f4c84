"""The callback for `transformers.Trainer`, and for the trainers that are made of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from torch import nn

from devwidget.capture.patching.registry import make_patch
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.undo import Undo
from devwidget.extras.watch.integrations.trainer_watch import TrainerWatch, WatchOptions
from devwidget.records.errors import require_package
from devwidget.records.finding import Severity
from devwidget.records.schema.message import Message

require_package("transformers", Message("`{name}`", name="devwidget.integrations.TransformersCallback"))

from transformers import Trainer, TrainerCallback  # noqa: E402
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK  # noqa: E402

_LOGGERS = tuple(INTEGRATION_TO_CALLBACK.values())
_AROUND = ("_run_epoch", "training_step")
"""What goes on inside of them ends the run when it fails: of that no callback is told. Older trainers have the second alone."""


class TransformersCallback(TrainerCallback):
    """Watches each training: `Trainer(..., callbacks=[devwidget.integrations.TransformersCallback()])`.

    Model and optimizer are those that the trainer has when it begins. What the steps take goes to its loggers (`report_to`)
    whenever it logs; what is found is a warning, at the end of the step in which it was.

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
        self._options = WatchOptions(every, path, fail_on)
        self._undo = Undo()
        self._others: list[Any] = []
        self.run: TrainerWatch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any) -> None:
        """Begin to watch."""
        self._end()
        trainer = _find_trainer(sys._getframe(1))
        self.run = TrainerWatch(_find_called(trainer, model), optimizer, self._options)
        if trainer is not None:
            self._others = trainer.callback_handler.callbacks
            for name in filter(lambda name: hasattr(trainer, name), _AROUND):
                self._undo.enter_context(make_patch(trainer, name, self._wrap_part))
        self.run.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell what was found."""
        if self.run is not None:
            self.run.tell_findings()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **known: Any) -> None:
        """Give the loggers ours besides: not to the console, which has one line for each look."""
        scalars = self.run.take_scalars() if self.run is not None else {}
        for callback in self._others if scalars else ():
            if isinstance(callback, _LOGGERS):
                callback.on_log(args, state, control, logs=dict(scalars), **known)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End, and tell what shows at the end only."""
        self._end()
        if self.run is not None:
            self.run.tell_findings()

    def _wrap_part(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                self._end(error)
                raise

        return watched

    def _end(self, error: BaseException | None = None) -> None:
        if self.run is not None:
            self.run.end(error)
        self._undo.run_steps()
        self._others = []


def _find_trainer(frame: FrameType | None) -> Any:
    """The trainer whose training calls a callback; None where something else does."""
    while frame is not None:
        caller = locals_of(frame).get("self")
        if isinstance(caller, Trainer):
            return caller
        frame = frame.f_back
    return None


def _find_called(trainer: Any, model: nn.Module) -> nn.Module:
    """The module that a trainer calls: what is around the model only where the hooks of the model itself would not tell."""
    around = getattr(trainer, "model_wrapped", model)
    return around if isinstance(around, nn.DataParallel) or hasattr(around, "_orig_mod") else model
