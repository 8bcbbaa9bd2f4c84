"""Births between recordings: a mode for every cell, for tensors that are made long before the batch that is traced."""

from __future__ import annotations

import time

import torch

from devwidget.capture import torch_internals
from devwidget.capture.modes.birth_mode import BirthMode
from devwidget.capture.patches.attention_fast_path import fast_paths
from devwidget.capture.patches.unseen_tensors import watch_swaps
from devwidget.capture.patches.worker_errors import keep_worker_errors
from devwidget.capture.patching.eager_stance import force_eager
from devwidget.capture.recording.births import Births
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.undo import Undo

_LONG_AGO = -(1 << 60)
"""The first number of a birth between recordings: below those of every recording."""
_ROUNDS, _CALLS = 7, 300

_mode: BirthMode | None = None
_state: RecordingState | None = None
_undo = Undo()


def get_background_births() -> Births | None:
    """What has been seen between recordings; None if nobody asked for it."""
    return None if _state is None else _state.births


def begin_watching() -> None:
    """Watch this thread, until `pause_watching`; a second call changes nothing, and neither does one that fails."""
    back = end_watching if _state is None else pause_watching
    try:
        _install_watch()
    except BaseException:
        back()
        raise


def _install_watch() -> None:
    global _mode, _state
    if _state is None:
        torch_internals.check_names("reading tensors", "recording")
        _undo.add_step(_forget_births)
        _state = RecordingState(heal=False, first_number=_LONG_AGO)
        fast_paths(None, _undo)
        watch_swaps(_state, _undo)
        keep_worker_errors(_undo)
        # Dynamo would trace into the mode, and compile anew whenever it comes or goes.
        force_eager(_undo)  # loads the compiler: a second
    if _mode is None:
        _mode = BirthMode(_state)
        _mode.__enter__()


def pause_watching() -> None:
    """Stop watching, and keep what is known."""
    global _mode
    if _mode is not None:
        _mode.leave_mode()
        _mode = None


def end_watching() -> None:
    """Stop watching, and forget; called again, do what an exception has kept it from."""
    pause_watching()
    _undo.run_steps()


def _forget_births() -> None:
    global _state
    _state = None


def cost_ns() -> float:
    """Nanoseconds that watching adds to one call of a factory, here and now; negative where the clock is too coarse."""
    mode = BirthMode(RecordingState(heal=False))
    return min(_watch_factories(mode) for _ in range(_ROUNDS)) - min(_watch_factories(None) for _ in range(_ROUNDS))


def _watch_factories(mode: BirthMode | None) -> float:
    started = time.perf_counter_ns()
    if mode is None:
        for _ in range(_CALLS):
            torch.zeros(1)
    else:
        with mode:
            for _ in range(_CALLS):
                torch.zeros(1)
    return (time.perf_counter_ns() - started) / _CALLS
