"""Watch a whole program: its model is found when its first optimizer has stepped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from devwidget.capture.interrupts import all_or_nothing, is_from_handler, uninterrupted
from devwidget.capture.snapshot.optimizer_state import parameters_of
from devwidget.capture.source_code.frames import reachable_objects
from devwidget.capture.tensors import all_tensors, is_module, walk_modules
from devwidget.capture.undo import Undo
from devwidget.capture.walk import TooManyObjects
from devwidget.extras.watch.records.run import StepRows, WatchedRun
from devwidget.extras.watch.step_hooks import Hook
from devwidget.extras.watch.watch import Watch
from devwidget.records.errors import error_text
from devwidget.records.schema.message import Message

_NOTHING_TRAINED = Message("no torch optimizer stepped twice with a module that a variable of the program refers to")


class ProgramWatch:
    """Watch the training of a program from its second step on: `with ProgramWatch() as watching: ...`.

    The model is the outermost module that is called and has a parameter of the first optimizer that steps.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = path
        self._undo = Undo()
        self._run: Watch | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._trouble = ""

    @property
    def result(self) -> WatchedRun:
        """The run so far; without steps, and with the reason, if nothing was trained."""
        if self._run is not None:
            return self._run.result
        reason = Message("{kind}: {reason}", kind=Message("watch"), reason=self._trouble or _NOTHING_TRAINED)
        return WatchedRun("", StepRows(), not_checked=(reason,))

    @all_or_nothing
    def __enter__(self) -> None:
        self._undo.add_step(register_optimizer_step_post_hook(Hook(self._after_step)).remove)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with uninterrupted():
            self._undo.run_steps()
            if self._run is not None:
                self._run.__exit__(kind, error, trace)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """After the first optimizer step, find which of its modules is called next."""
        if self._optimizer is not None:
            return
        self._optimizer = optimizer
        try:
            for module in list(_find_trained(optimizer, sys._getframe(1))):
                hook = module.register_forward_pre_hook(Hook(self._before_call), with_kwargs=True)
                self._undo.add_step(hook.remove)
        except Exception as trouble:  # ours, which must not become the program's
            self._note_trouble(trouble)

    def _before_call(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the outermost module, which is called before all others."""
        if self._run is not None:
            return
        try:
            self._undo.run_steps()
            run = Watch(model, self._optimizer, path=self._path, first=1)
            self._run = run
            run.begin_in_call(args, kwargs)
        except Exception as trouble:
            self._note_trouble(trouble)

    def _note_trouble(self, trouble: Exception) -> None:
        if is_from_handler(trouble):
            raise trouble
        self._trouble = error_text(trouble)


def _find_trained(optimizer: torch.optim.Optimizer, frame: FrameType) -> Iterator[nn.Module]:
    """Return the modules in reach of the current calls that have a parameter of an optimizer."""
    trained = set(map(id, parameters_of(optimizer)))
    known: set[int] = set()
    for root in _reachable_modules(frame):
        if id(root) in known:
            continue
        for _, module in walk_modules(root):
            if id(module) not in known and any(id(each) in trained for each in all_tensors(module)):
                yield module
            known.add(id(module))


def _reachable_modules(frame: FrameType) -> Iterable[nn.Module]:
    found: list[nn.Module] = []
    try:
        found += filter(is_module, reachable_objects(frame))
    except TooManyObjects:  # those that were near are known
        return found
    return found
