"""The last steps of a rank: when each ended, its settings, and optionally checksums of its parameters."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from devwidget.extras.ranks.rank_tensors import compute_checksums
from devwidget.extras.ranks.records.rank import Setting, StepSettings
from devwidget.extras.ranks.settings import (
    Raw,
    read_mode,
    read_modes,
    read_optimizers,
    read_policies,
    word_optimizers,
)
from devwidget.records.errors import error_text

MOST_STEPS = 32
"""Number of recorded step ends, and of recorded runs of equal settings."""
_EARLY, _EACH = frozenset({1, 2, 4}), 64
"""Steps after which all modules are walked, the same on every rank, because only equal steps are comparable."""


class Summed(NamedTuple):
    """Checksums of parameters.

    Attributes:
        step: Step after which they were computed, -1 if they were not.
        checksums: `(path, checksum)` of each.
    """

    step: int
    checksums: tuple[tuple[str, str], ...]


class StepHistory:
    """Count the optimizer steps of this process, and keep the last ones.

    `note_step` runs on the training thread after each step; queries read from another thread.

    Args:
        find_model: Returns the model, if there is one.
        checksums: Compute checksums of parameters that every rank has in full, which syncs with the GPU.

    Attributes:
        summed: Checksums after the newest step that has them; replaced as one object, so that readers see one state.
        fault: Why nothing more is recorded; "" if nothing failed.
    """

    def __init__(self, find_model: Callable[[], nn.Module | None], *, checksums: bool) -> None:
        self._find_model, self._checksums = find_model, checksums
        self._model: weakref.ref[nn.Module] | None = None
        self._counts: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._ends: deque[tuple[int, float]] = deque(maxlen=MOST_STEPS)
        self._runs: deque[tuple[int, int, Raw, Setting | None]] = deque(maxlen=MOST_STEPS)
        self._modes: deque[StepSettings] = deque(maxlen=4)
        self.summed = Summed(-1, ())
        self.fault = ""

    def note_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Count and record an optimizer step; called by a hook after each."""
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if not self.fault:
            try:
                self._remember_step(self.count_steps())
            except Exception as error:
                # An optimizer of the user's that is like no other must not end the step.
                self.fault = error_text(error)

    def count_steps(self) -> int:
        """Return the largest number of steps of an optimizer."""
        return max(dict(self._counts).values(), default=0)

    def list_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizers that have taken a step."""
        return list(self._counts)

    def list_ends(self) -> tuple[tuple[int, float], ...]:
        """Return the last steps with the time at which each ended."""
        return tuple(self._ends)

    def list_settings(self) -> tuple[StepSettings, ...]:
        """Return the settings of the last steps, and for some of them the modes of modules."""
        done = self.count_steps()  # a training that has begun anew has fewer than one before it, of which the rest is
        found = list(self._modes)
        for first, last, read, mode in list(self._runs):
            settings = list(word_optimizers(read))
            if mode is not None:
                settings.append(mode)
            found.append(StepSettings(first, last, tuple(settings)))
        return tuple(run for run in found if run.first <= done)

    def _remember_step(self, step: int) -> None:
        model = self._model() if self._model is not None else None
        if is_due(step):
            model = self._find_model()
        mode = read_mode(model) if model is not None else None
        if self._ends and step < self._ends[-1][0]:
            # Another training: what was read of the modules of the last is no step of this one.
            self._modes.clear()
        self._ends.append((step, time.time()))
        self._extend_run(step, read_optimizers(self.list_optimizers()), mode)
        if model is not None and is_due(step):
            self._look_at(model, step)

    def _extend_run(self, step: int, read: Raw, mode: Setting | None) -> None:
        """Merge consecutive steps with equal settings; for a step with several optimizers keep the newest."""
        first = step
        if self._runs and self._runs[-1][1] >= step - 1:
            begun, last, before, mode_before = self._runs[-1]
            if (before, mode_before) == (read, mode):
                first = begun
                self._runs.pop()
            elif last == step:
                self._runs.pop()
                if begun < step:
                    self._runs.append((begun, step - 1, before, mode_before))
        self._runs.append((first, step, read, mode))

    def _look_at(self, model: nn.Module, step: int) -> None:
        self._model = weakref.ref(model)
        self._modes.append(StepSettings(step, step, (*read_modes(model), *read_policies(model))))
        if self._checksums:
            self.summed = Summed(step, compute_checksums(model))


def is_due(step: int) -> bool:
    """Return whether all modules are walked after a step."""
    return step in _EARLY or step % _EACH == 0
