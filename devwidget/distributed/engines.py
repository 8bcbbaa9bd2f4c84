"""The engines of ipyparallel as ranks: asked by their sockets, which they make at the first question."""

from __future__ import annotations

import pathlib
import time
import weakref
from collections.abc import Callable
from typing import Any

from devwidget.capture.object_fields import module_name, mro_of
from devwidget.distributed.asking import all_at_once, ask
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.ranks.merging import Heard
from devwidget.records.schema.message import Message

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
    return all_at_once(lambda rank: ask(pathlib.Path(places[rank]), rank), sorted(places), patience)


def _folders(view: Any, served: Served) -> dict[int, str]:
    """Where each engine answers; one that has said so is not asked again, because it may be busy then."""
    known = _known.setdefault(view.client, {})
    until = time.monotonic() + FIRST_SECONDS
    waiting = {target: view.client[target].apply_async(served) for target in view.targets if target not in known}
    for target, result in waiting.items():
        try:
            known[target] = result.get(max(0.1, until - time.monotonic()))
        except Exception as error:  # whatever was raised in the engine, or on the way
            raise DevwidgetError(
                Message("engine {target} cannot answer: {error}", target=target, error=error_text(error)), instead=_INSTEAD
            ) from error
    return dict(known[target] for target in view.targets)


_known: weakref.WeakKeyDictionary[Any, dict[int, tuple[int, str]]] = weakref.WeakKeyDictionary()
"""Rank and folder of each engine, by client."""
_INSTEAD = Message("torch.distributed.init_process_group(...) in each engine, and then ask again")
