"""How far a step is: from time to time, the module that begins and the share of the modules that have begun."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import nn

from devwidget.capture.modules import walk_modules
from devwidget.capture.recording.state import RecordingState

EVERY_SECONDS = 0.2


class Progress:
    """A hook for modules that begin, for whoever waits before a screen.

    Args:
        state: of the recording.
        model: whose modules count as the whole.
        told: called with words such as `forward of encoder.layer.3, 40 %`.
    """

    def __init__(self, state: RecordingState, model: nn.Module, told: Callable[[str], None]) -> None:
        self._state, self._told = state, told
        self._whole, self._begun, self._last = max(1, sum(1 for _ in walk_modules(model))), 0, 0.0

    def report_module(self, module: nn.Module, args: Any) -> None:
        """A module begins."""
        if self._state.is_elsewhere():
            return
        self._begun += 1
        now, path = time.perf_counter(), self._state.tracker.here.path
        if now - self._last >= EVERY_SECONDS and path:
            self._last = now
            self._told(f"{self._state.tracker.phase} of {path}, {min(99, 100 * self._begun // self._whole)} %")
