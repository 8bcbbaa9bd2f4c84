"""Births between recordings: a mode for every cell, for tensors that are made long before the batch that is traced."""

from __future__ import annotations

import contextlib
import time

import torch

from devwidget.capture import torch_internals
from devwidget.capture.modes.birth_mode import BirthWatch
from devwidget.capture.patches import compiled
from devwidget.capture.patches.attention_fast_path import fast_paths
from devwidget.capture.patches.tensor_swaps import swaps
from devwidget.capture.recording.births import Births
from devwidget.capture.recording.state import State

_LONG_AGO = -(1 << 60)
"""The first number of a birth between recordings: below those of every recording."""
_ROUNDS, _CALLS = 7, 300

_mode: BirthWatch | None = None
_state: State | None = None
_patches = contextlib.ExitStack()


def births() -> Births | None:
    """What has been seen between recordings; None if nobody asked for it."""
    return None if _state is None else _state.births


def begin() -> None:
    """Watch this thread, until `pause`; a second call changes nothing."""
    global _mode, _state
    if _state is None:
        torch_internals.check("reading tensors", "recording", "watching compiled code")  # loads the compiler: a second
        _state = State(heal=False, first_number=_LONG_AGO)
        _patches.enter_context(fast_paths())
        _patches.enter_context(swaps(_state))
        # Dynamo would trace into the mode, and compile anew whenever it comes or goes.
        _patches.enter_context(compiled.forced(torch_internals.eval_frame))
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
    """Stop watching, and forget."""
    global _state
    pause()
    _patches.close()
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
