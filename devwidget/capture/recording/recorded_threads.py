"""Record further threads of the program: what it starts and submits during the recording is recorded too, until it ends."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import Lock
from devwidget.capture.object_fields import is_among
from devwidget.capture.patching.mode_stack import dispatch_modes
from devwidget.capture.patching.thread_starts import Inside, pool_tasks, thread_starts
from devwidget.capture.recording.module_tracker import ModuleCall
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.undo import Undo


class _Here(threading.local):
    """Whether threads started here get their work from tasks that are watched themselves."""

    by_task = False


_here = _Here()
_lock = Lock()


@contextlib.contextmanager
def watched_by_task() -> Iterator[None]:
    """Do not watch threads started in the block: they may serve other recordings too, or outlive this one."""
    before, _here.by_task = _here.by_task, True
    try:
        yield
    finally:
        _here.by_task = before


def watch_threads(state: RecordingState, undo: Undo) -> None:
    """Watch threads that the program of this recording starts, and the tasks that it submits to any pool."""
    watched = _Watched(state)
    undo.add_step(watched.end_watch)
    thread_starts(lambda: None if _here.by_task else watched.from_here(), undo)
    pool_tasks(watched.from_here, undo, watched_by_task)


class _Watched:
    """The threads of one recording, and the modes that are active in them."""

    def __init__(self, state: RecordingState) -> None:
        self._state = state
        self._modes: list[Any] = []
        self._is_over = False

    def from_here(self) -> Inside | None:
        """Return the context for work in another thread; None if this thread does not run the program of this recording."""
        here = self._state.tracker.here
        if self._state.is_here():
            return functools.partial(self._run_inside, list(here.stack), here.path, here.replica)
        return None

    @_lock
    def end_watch(self) -> None:
        """Stop watching threads that outlive the recording."""
        self._is_over = True
        for mode in self._modes:
            mode.leave_mode()
        self._modes.clear()

    @contextlib.contextmanager
    def _run_inside(self, running: list[ModuleCall], path: str | None, replica: int) -> Iterator[None]:
        here = self._state.tracker.here
        before = here.stack, here.path, here.replica
        with Undo() as undo:
            if not self._state.is_here():
                self._enter_thread(undo)
                here.stack, here.path, here.replica = list(running), path, replica
            try:
                yield
            finally:
                here.stack, here.path, here.replica = before

    @_lock
    def _enter_thread(self, undo: Undo) -> None:
        if self._is_over:
            return
        before = _active_modes()
        undo.enter_context(self._state.watching())
        ours = [mode for mode in _active_modes() if not is_among(mode, before)]
        undo.add_step(self._forget_modes, ours)
        self._modes += ours

    @_lock
    def _forget_modes(self, ours: list[Any]) -> None:
        self._modes[:] = [mode for mode in self._modes if not is_among(mode, ours)]


def _active_modes() -> list[Any]:
    functions: list[Any] = torch_internals.function_modes()
    return [*functions, *dispatch_modes()]
