"""No garbage collection while thousands of records are made: each pass would walk through all those made so far."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from devwidget.capture.undo import Undo


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Switch Python's collector off for the duration, unless the user has it off already."""
    with Undo() as undo:
        if gc.isenabled():
            undo.add_step(gc.enable)
            gc.disable()
        yield
