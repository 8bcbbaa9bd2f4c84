"""Births between recordings: a mode for every cell, for tensors that are made long before the batch that is traced."""

from __future__ import annotations

import time

import torch

from devwidget.capture import torch_internals
from devwidget.capture.modes.birth_mode import BirthWatch
from devwidget.capture.patches.attention_fast_path import fast_paths
from devwidget.capture.patches.tensor_swaps import swaps
from devwidget.capture.patching.eager_stance import force_eager
from devwidget.capture.recording.births import Births
from devwidget.capture.recording.state import State
from devwidget.capture.undo import Undo

_LONG_AGO = -(1 << 60)
"""The first number of a birth between recordings: below those of every recording."""
_ROUNDS, _CALLS = 7, 300

_mode: BirthWatch | None = None
_state: State | None = None
_undo = Undo()


def births() -> Births | None:
    """What has been seen between recordings; None if nobody asked for it."""
    return None if _state is None else _state.births


def begin() -> None:
    """Watch this thread, until `pause`; a second call changes nothing, and neither does one that fails."""
    back = end if _state is None else pause
    try:
        _begin()
    except BaseException:
        back()
        raise


def _begin() -> None:
    global _mode, _state
    if _state is None:
        torch_internals.check("reading tensors", "recording")
        _undo.add(_forget)
        _state = State(heal=False, first_number=_LONG_AGO)
        fast_paths(None, _undo)
        swaps(_state, _undo)
        # Dynamo would trace into the mode, and compile anew whenever it comes or goes.
        force_eager(_undo)  # loads the compiler: a second
    if _mode is None:
        _mode = BirthWatch(_state)
        _mode.__enter__()


def pause() -> None:
    """Stop watching, and keep what is known."""
    global _mode
    if _mode is not None:
        _mode.leave()
        _mode = None


def end() -> None:
    """Stop watching, and forget; called again, do what an exception has kept it from."""
    pause()
    _undo.run()


def _forget() -> None:
    global _state
    _state = None


def cost_ns() -> float:
    """Nanoseconds that watching adds to one call of a factory, here and now; negative where the clock is too coarse."""
    mode = BirthWatch(State(heal=False))
    return min(_factories(mode) for _ in range(_ROUNDS)) - min(_factories(None) for _ in range(_ROUNDS))


def _factories(mode: BirthWatch | None) -> float:
    started = time.perf_counter_ns()
    if mode is None:
        for _ in range(_CALLS):
            torch.zeros(1)
    else:
        with mode:
            for _ in range(_CALLS):
                torch.zeros(1)
    return (time.perf_counter_ns() - started) / _CALLS
