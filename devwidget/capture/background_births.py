"""Remember where tensors are created between recordings, with a function mode in every cell.

By default the mode watches the first calls of each cell, until something is compiled. On request it watches every call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from types import FrameType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.modes.birth_mode import BirthMode
from devwidget.capture.patches.arrivals import watch_swaps
from devwidget.capture.patches.compiled import force_eager
from devwidget.capture.patches.unnoticed import stay_unnoticed
from devwidget.capture.patches.worker_errors import keep_worker_errors
from devwidget.capture.patching.registry import everywhere, listen
from devwidget.capture.recording.births import Births
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite
from devwidget.capture.undo import Undo
from devwidget.records.errors import DevwidgetError

_LONG_AGO = -(1 << 60)
"""Number of the first tensor created between recordings, below the numbers of every recording."""
MOST_CALLS = 10_000
"""Calls of a cell that are watched by default. Each takes 5 to 25 us longer: see `benchmarks/births_cells.py`."""


class Watching(Enum):
    """Which calls of a cell are watched. By default the first ones, until something is compiled."""

    FIRST = "first"
    EVERY = "every"
    COMPILED = "none any more"


_watching = Watching.FIRST
_mode: BirthMode | None = None
_state: RecordingState | None = None
_undo, _undo_cell = Undo(), Undo()


def get_background_births() -> Births | None:
    """Return what was recorded between recordings; None if nothing was watched."""
    if _state is None:
        return None
    return _state.births


def which_watched() -> Watching:
    """Return which calls of each cell are watched."""
    return _watching


def begin_watching() -> None:
    """Watch every call in this thread until `pause_watching`. Idempotent; an error ends the watch."""
    global _watching
    back = pause_watching if _watching is Watching.EVERY else end_watching
    try:
        state = _begin_state()
        if _watching is not Watching.EVERY:
            pause_watching()
            _install_patches(state, _undo)
            # Dynamo would trace into the mode, and compile anew whenever it comes or goes.
            if torch_internals.has_name("compiler_stance"):
                force_eager(_undo)  # loads the compiler: a second
            _watching = Watching.EVERY
        if _mode is None:
            _enter_mode(BirthMode(state))
    except BaseException:
        back()
        raise


def begin_cell() -> None:
    """Watch the first calls of a cell in this thread until `pause_watching`, or every call if that was requested."""
    if _watching is Watching.EVERY:
        begin_watching()
    elif _watching is not Watching.COMPILED and _mode is None:
        try:
            state = _begin_state()
            _install_patches(state, _undo_cell)
            listen(everywhere, *_compiling_function(), _stop_before, _undo_cell)
            _enter_mode(_FirstCalls(state))
        except BaseException as error:
            pause_watching()
            if not isinstance(error, DevwidgetError):  # `begin_watching` says what this torch lacks
                raise


def _install_patches(state: RecordingState, undo: Undo) -> None:
    stay_unnoticed(undo)
    watch_swaps(state, undo)
    keep_worker_errors(undo)


def _compiling_function() -> tuple[Any, str]:
    """Return the function that torch calls before compiled code runs, or the one that loads the compiler."""
    if torch_internals.DYNAMO in sys.modules and torch_internals.has_name("callback_from_stance"):
        return torch_internals.find_target("callback_from_stance")
    return torch, "compile"


def _stop_before(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    global _watching
    is_compiled = not args or args[0] not in (None, False)  # so torch calls code that is not to be compiled
    if is_compiled and _watching is Watching.FIRST:
        pause_watching()
        _watching = Watching.COMPILED
    return original(*args, **kwargs)


def _begin_state() -> RecordingState:
    global _state
    if _state is None:
        torch_internals.check_names("reading tensors", "recording")
        _state = RecordingState(heal=False, first_number=_LONG_AGO)
    return _state


def _enter_mode(mode: BirthMode) -> None:
    global _mode
    _mode = mode
    mode.__enter__()


def pause_watching() -> None:
    """Stop watching and keep what is known."""
    global _mode
    if _mode is not None:
        _mode.leave_mode()
        _mode = None
    _undo_cell.run_steps()


def end_watching() -> None:
    """Stop watching and forget. A second call finishes what an exception interrupted."""
    global _state, _watching
    pause_watching()
    _undo.run_steps()
    _state, _watching = None, Watching.FIRST


class _FirstCalls(BirthMode):
    """Leaves after a number of calls."""

    def __init__(self, state: RecordingState) -> None:
        super().__init__(state)
        self._find_site, self._site = self._site, self._count_call
        self._calls_left = MOST_CALLS

    def _count_call(self, frame: FrameType | None) -> RawSite | None:
        self._calls_left -= 1
        if self._calls_left == 0 and frame is not None:
            self.leave_after_call(frame)
        return self._find_site(frame)
