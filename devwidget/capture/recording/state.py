"""State shared by the parts of one recording."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.utils.weak import WeakIdKeyDictionary

from devwidget import extras
from devwidget.capture import torch_internals
from devwidget.capture.patching import registry
from devwidget.capture.patching.global_hooks import GlobalHook
from devwidget.capture.patching.mode_stack import dispatch_modes, has_mode_of
from devwidget.capture.recording.births import Births, TensorKeyRef
from devwidget.capture.recording.event_log import Log
from devwidget.capture.recording.loader_clock import LoaderClock
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.recording.parallel_calls import ParallelCalls
from devwidget.capture.recording.ties import Ties
from devwidget.capture.recording.transfers import Transfers
from devwidget.capture.recording.waits import Waits
from devwidget.capture.source_code.call_sites import RawSite
from devwidget.capture.undo import Undo
from devwidget.records.site import Site
from devwidget.records.trace import Family, Fault


class _RecordedThread(threading.local):
    """The recordings whose program runs in this thread."""

    states: tuple[RecordingState, ...] = ()


_thread = _RecordedThread()
_SECONDS_PER_OPERATOR = 0.0002
"""What a recorded operator takes longer, at most, also on virtual GPUs."""


class RecordingState:
    """One recording's log, births and running modules.

    Attributes:
        heal: repair each fault and continue.
        births: which line created or moved a tensor.
        attempts: which line last requested a move of a tensor, whether or not it kept the result.
        given: tensors of the batch and the target of a step, each with which of the two it belongs to.
        saved: which line created a state dict.
        loaders: which line created a `DataLoader`, also by its iterator.
        loaded: the same for each tensor that a loader returned.
        loader_clock: how long the program waits for batches.
        observers: features of extras. `operator_begins` is called before an operator that is not torch's own, such as a
            collective; `list_facts` returns fields of the trace.
        watching: creates new modes for another thread; set by the recorder.

    Args:
        older: births of tensors created before.
        first_number: number of the first event.
    """

    def __init__(self, *, heal: bool, older: Births | None = None, first_number: int = 0) -> None:
        self.heal = heal
        self._older, self._first_number = older, first_number
        self.started = time.perf_counter()
        self.watching: Callable[[], AbstractContextManager[object]]
        self.forget_all()

    def begin_in_thread(self, undo: Undo) -> None:
        """Mark this thread as running the program of this recording, until it is undone."""
        undo.add_step(self._end_in_thread)
        _thread.states = (*_thread.states, self)

    def _end_in_thread(self) -> None:
        _thread.states = tuple(each for each in _thread.states if each is not self)

    def is_here(self) -> bool:
        """Return whether this thread runs the program of this recording. Hooks and patches apply to all threads."""
        # The threads of autograd have the modes of the thread that called `backward`.
        return self in _thread.states or has_mode_of(self, (*dispatch_modes(), *torch_internals.function_modes()))

    def listen(self, owner: Any, name: str, around: Callable[..., Any], undo: Undo) -> None:
        """Call `around(original, *args, **kwargs)` in place of a function, where the program of this recording runs."""
        registry.listen(self.is_here, owner, name, around, undo)

    def call_hook(self, table: GlobalHook, hook: Callable[..., None], undo: Undo) -> None:
        """Call a hook from one of torch's tables, where the program of this recording runs."""

        def call(*args: Any) -> None:
            if self.is_here():
                hook(*args)

        table.call_hook(call, undo)

    def report_fault(self, what: Family, call: str, site: RawSite | Site | None, **fields: Any) -> Fault:
        """Log a fault and return it; see `ModuleTracker.describe_fault` for the arguments."""
        return self.log.log_fault(self.tracker.describe_fault(what, call, site, **fields))

    def let_go(self) -> None:
        """End the recording and release everything that its records do not need.

        All weak references are dropped here, and none is left to the garbage collector, where a traceback could leave them:
        until 3.13 Python crashes if it collects a weak reference at the moment when its object dies.
        """
        for known in (self.births, self.attempts, self.given, self.saved, self.loaders, self.loaded):
            known.clear()
        self.tracker.let_go()
        self.ties.let_go()
        self.forget_all()

    def forget_all(self) -> None:
        """Start with an empty state."""
        self.log = Log(self.started, self._first_number)
        self.births = Births(self._older)
        self.attempts = Births()
        self.given: WeakIdKeyDictionary = WeakIdKeyDictionary(ref_type=TensorKeyRef)
        self.saved: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.loaders: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.loaded: WeakIdKeyDictionary = WeakIdKeyDictionary(ref_type=TensorKeyRef)
        operators = self.log.ops
        self.loader_clock = LoaderClock(lambda: _SECONDS_PER_OPERATOR * sum(entry.count for entry in operators.values()))
        self.tracker = ModuleTracker()
        self.ties = Ties(self.log, self.births, self.tracker)
        self.transfers = Transfers(self.tracker)
        self.waits = Waits(self.tracker)
        self.observers: tuple[Any, ...] = tuple(part.OBSERVER(self.log, self.tracker) for part in extras.load_all("observers"))
        self.parallel = ParallelCalls()

    def list_facts(self) -> dict[str, Any]:
        """Return fields of the trace that the parts of this recording know."""
        facts: dict[str, Any] = {"loaders": self.loader_clock.list_times()}
        parts: tuple[Any, ...] = (self.log, self.parallel, self.transfers, self.waits, *self.observers)
        for part in parts:
            facts |= part.list_facts()
        return facts
