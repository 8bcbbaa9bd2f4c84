"""Find schedulers of an optimizer that does not step: another one trains the model, and its learning rate stays the same."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, MutableMapping
from types import FrameType
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture.object_fields import class_name, dict_of, is_a, names_of
from devwidget.capture.patches.untrained import make_fault
from devwidget.capture.patching.global_hooks import STEP_BEGINS
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import innermost_optimizer, tensors_of
from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.frames import name_in
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.stack import USER, stack, user_frames
from devwidget.capture.tensors import gradient_of
from devwidget.capture.undo import Undo
from devwidget.records.fault_details import OtherSchedule
from devwidget.records.trace import Fault

_KINDS = [kind for kind in vars(lr_scheduler).values() if isinstance(kind, type) and "step" in names_of(kind)]


class _Schedulers:
    """The optimizers of a recording that stepped, and schedulers whose optimizer may not have."""

    def __init__(self, state: RecordingState) -> None:
        self._state = state
        self._stepped: MutableMapping[torch.optim.Optimizer, bool] = WeakIdKeyDictionary()
        self._idle: dict[int, tuple[weakref.ref[torch.optim.Optimizer], Fault]] = {}

    def note_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._stepped[optimizer] = True
        self._idle = {key: pair for key, pair in self._idle.items() if pair[0]() is not optimizer}

    def step(self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        optimizer = dict_of(scheduler).get("optimizer")
        if is_a(optimizer, torch.optim.Optimizer) and not _is_being_built(frame):
            self._check(scheduler, innermost_optimizer(optimizer), frame)
        return original(scheduler, *args, **kwargs)

    def _check(self, scheduler: Any, scheduled: torch.optim.Optimizer, frame: FrameType) -> None:
        if scheduled in self._stepped or id(scheduler) in self._idle:
            return
        for optimizer in list(self._stepped):
            if _share(scheduled, optimizer) or (_look_alike(scheduled, optimizer) and not _is_named(frame, scheduled)):
                frames = list(user_frames(frame))
                names = (class_name(type(scheduler)), class_name(type(scheduled)), class_name(type(optimizer)))
                detail = OtherSchedule(*names, find_construction(frames, optimizer))
                built = find_construction(frames, scheduler)
                fault = make_fault(self._state, frame, "optimizer", "", (), detail, built)
                self._idle[id(scheduler)] = weakref.ref(scheduled), fault
                return

    def end(self) -> None:
        """At the end of the recording, report schedulers whose optimizer never stepped."""
        for _, fault in self._idle.values():
            self._state.log.log_fault(fault)


def watch_schedulers(state: RecordingState, undo: Undo) -> None:
    """Watch the steps of schedulers and of optimizers."""
    watch = _Schedulers(state)
    for kind in _KINDS:
        state.listen(kind, "step", watch.step, undo)
    undo.add_step(watch.end)
    state.call_hook(STEP_BEGINS, watch.note_step, undo)


def _is_being_built(frame: FrameType) -> bool:
    """Return whether the step is the one of the scheduler's own `__init__`."""
    library = itertools.takewhile(lambda place: place[0] is not USER, stack(frame))
    return any(each.f_code.co_name == "__init__" for _, each in library)


def _share(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    return not set(map(id, tensors_of(one))).isdisjoint(map(id, tensors_of(other)))


def _look_alike(old: torch.optim.Optimizer, new: torch.optim.Optimizer) -> bool:
    """Return whether one optimizer may be an earlier form of the other, whose parameters get no gradients."""
    shapes = [each.shape for each in tensors_of(old)]
    is_idle = all(gradient_of(each) is None for each in tensors_of(old))
    return type(old) is type(new) and is_idle and shapes == [each.shape for each in tensors_of(new)]


def _is_named(frame: FrameType, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the program still has a name for an optimizer, apart from its scheduler."""
    for each in user_frames(frame):
        owner, _, attribute = name_in(each, optimizer).partition(".")
        value = {**each.f_globals, **locals_of(each)}.get(owner)
        if owner and not (attribute and is_a(value, lr_scheduler.LRScheduler)):
            return True
    return False
