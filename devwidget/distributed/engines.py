"""The engines of ipyparallel as ranks: asked by their sockets, which they make at the first question."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

from devwidget.capture.object_fields import module_name, mro_of
from devwidget.distributed.asking import ask
from devwidget.records.errors import DevwidgetError
from devwidget.records.ranks.merging import Heard

Served = Callable[[], tuple[int, str]]
"""Sees that a process answers, from now on if it has not before: its rank, and the folder of its socket."""
FIRST_SECONDS = 30.0
"""For an engine to load torch and this package."""


def is_view(source: object) -> bool:
    """True for a view of ipyparallel, and for its client; the library is not loaded to find out."""
    return any(module_name(kind).partition(".")[0] == "ipyparallel" for kind in mro_of(type(source)))


def ask_engines(view: Any, patience: float, served: Served) -> list[Heard]:
    """Every engine of a view.

    Args:
        served: runs in each engine.

    Raises:
        DevwidgetError: if no engine could begin to answer.
    """
    view = view[:] if not hasattr(view, "apply_async") else view
    places = _folders(view, served)
    if not places:
        raise DevwidgetError("no engine of this view answers", instead="initialise torch.distributed in each, then ask again")
    return [ask(pathlib.Path(folder), rank, patience) for rank, folder in sorted(places.items())]


def _folders(view: Any, served: Served) -> dict[int, str]:
    until = time.monotonic() + FIRST_SECONDS
    waiting = [view.client[target].apply_async(served) for target in view.targets]
    found = {}
    for each in waiting:
        rank, folder = each.get(max(0.1, until - time.monotonic()))
        found[rank] = folder
    return found
