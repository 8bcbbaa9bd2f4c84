"""Tracebacks end where those of a GPU end: in torch, not in the code that stands in for it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from devwidget.capture.explain.folded_frames import fold, folded, unfold
from devwidget.simulator.patching import Patches
from devwidget.simulator.torch_internals import locate_name


def install(patches: Patches) -> None:
    """Fold what the notebook shows, and the text that a worker of DataParallel hands over."""
    worker_error, _ = locate_name("reraise_worker_error")
    patches.wrap(worker_error, "__init__", _without_ours)
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        owner = object()
        patches.undo.add(_unfold_after_the_cell, shell, owner)
        fold(shell, owner)


def _without_ours(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        with folded(sys.exception()):  # torch writes the text down now; the frames are gone when it is read
            original(self, *args, **kwargs)

    return wrapped


def _unfold_after_the_cell(shell: Any, owner: object) -> None:
    """What `with devwidget.simulate(2):` lets through is shown when these GPUs are gone."""

    def unfold_now(result: Any) -> None:
        shell.events.unregister("post_run_cell", unfold_now)
        unfold(shell, owner)

    shell.events.register("post_run_cell", unfold_now)
