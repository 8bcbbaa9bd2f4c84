"""Where DataParallel wrappers are built; nothing else tells it afterwards."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from devwidget.capture.call_site import raw_site
from devwidget.capture.doors.patch import patched
from devwidget.capture.state import State


@contextlib.contextmanager
def constructions(state: State) -> Iterator[None]:
    """Remember the line of each `nn.DataParallel(...)`."""
    original = nn.DataParallel.__init__

    @functools.wraps(original)
    def init(self: nn.DataParallel[Any], *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        state.places.made[self] = raw_site(sys._getframe(1))

    with patched(nn.DataParallel, "__init__", init):
        yield
