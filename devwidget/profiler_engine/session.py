"""torch's profiler around a block, without the list of Python objects that `torch.profiler` builds at its end.

It records operators with what went in, calls of Python with their lines, modules and optimizers, and allocations, in C++:
https://github.com/pytorch/pytorch/tree/v2.13.0/torch/csrc/profiler
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.undo import Undo
from devwidget.profiler_engine.adapter import list_missing, make_options
from devwidget.records.schema.message import Message

_QUIET = {"KINETO_LOG_LEVEL": "6"}
"""Kineto writes two lines to the error stream at each start and stop; above 5 nothing. It asks once, before the first."""


def find_obstacle() -> Message | None:
    """Why the profiler cannot record here and now; None if it can."""
    if not torch.profiler.kineto_available():
        return Message("this build of torch has no profiler")
    if any(list_missing()):
        return Message("the profiler of torch {version} is made otherwise", version=torch.__version__)
    if torch_internals.profiler_type() != torch_internals.ActiveProfilerType.NONE:
        return Message("another profiler of torch runs")
    if sys.getprofile() is not None:  # the lines come from a profile function of C, which would take its place
        return Message("another profiler of Python runs")
    return None


class ProfilerSession:
    """One run of the profiler.

    Attributes:
        roots: the outermost events, once it has ended.
        has_memory: allocations are recorded, too.
        interrupted: the program has started a profiler of its own meanwhile, to which this one has given way.
    """

    def __init__(self) -> None:
        self.roots: list[Any] = []
        self.interrupted = self.has_memory = False
        self._is_running = False
        self._result: Any = None  # the events point into its texts
        self._thread = 0
        self._undo = Undo()

    def start(self) -> None:
        """Begin to record this thread, and those of autograd that work for it."""
        activities = {torch_internals.ProfilerActivity.CPU}
        in_use: Callable[[], bool] = torch.cuda.is_initialized
        if in_use():
            activities.add(torch_internals.ProfilerActivity.CUDA)
        # Shapes, memory, stacks, no operations counted, modules. Of the host's memory nobody asks here, and torch would warn
        # once of what was there before.
        self.has_memory = len(activities) > 1
        asked = True, self.has_memory, True, False, True
        config = torch_internals.ProfilerConfig(torch_internals.ProfilerState.KINETO, *asked, make_options())
        with _environment(_QUIET):
            torch_internals.prepare_profiler(config, activities)
        # Two cannot run: who starts one of their own gets it, as without us.
        self._undo.enter_context(make_patch(*torch_internals.find_target("prepare_users_profiler"), self._give_way))
        try:
            torch_internals.enable_profiler(config, activities)
        except BaseException:
            self._undo.run_steps()
            raise
        self._is_running, self._thread = True, threading.get_ident()

    def stop(self) -> None:
        """End; what was recorded is in `roots`."""
        self._undo.run_steps()
        if self._is_running:
            self._end()

    def forget_events(self) -> None:
        """Let go of what was recorded."""
        self.roots, self._result = [], None

    def _end(self) -> None:
        self._is_running = False
        self._result = torch_internals.disable_profiler()
        self.roots = self._result.experimental_event_tree()

    def _give_way(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def prepare_profiler(*args: Any, **kwargs: Any) -> Any:
            if self._is_running and threading.get_ident() == self._thread:
                self.interrupted = True
                self._end()
            return original(*args, **kwargs)

        return prepare_profiler


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if before[name] is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
