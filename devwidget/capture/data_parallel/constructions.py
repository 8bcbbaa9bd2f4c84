"""Where DataParallel wrappers are built; nothing else tells it afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import nn

from devwidget.capture.patching.registry import patched
from devwidget.capture.recording.state import State
from devwidget.capture.source_code.call_sites import raw_site
from devwidget.capture.undo import Undo


def constructions(state: State, undo: Undo) -> None:
    """Remember the line of each `nn.DataParallel(...)`."""

    def watched(original: Callable[..., None]) -> Callable[..., None]:
        def init(self: nn.DataParallel[Any], *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if not state.is_elsewhere():
                state.tracker.made[self] = raw_site(sys._getframe(1))

        return init

    undo.enter(patched(nn.DataParallel, "__init__", watched))
