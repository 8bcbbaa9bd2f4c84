"""Where ranks are heard: a folder of sockets and files, files alone, or the engines of ipyparallel."""

from __future__ import annotations

import os
import pathlib
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from devwidget.capture.object_fields import module_name, mro_of
from devwidget.distributed.asking import (
    LONG_IN_A_COLLECTIVE,
    ask_folder,
    ask_rank,
    ask_ranks,
    judge_written,
    mark_hung,
    mark_stale,
)
from devwidget.distributed.job import owner_folder, ranks_in, refuse_shared
from devwidget.distributed.unix_http import LARGEST_ANSWER
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.loading.json_io import load
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.merging import Heard, merge
from devwidget.records.ranks.rank import RankReport
from devwidget.records.schema.message import Message

_SOURCES = Message("a folder of ranks or several, their files, or a view of ipyparallel: devwidget.ranks('runs/today')")


def hear_ranks(source: Any, served: Served, *, patience: float = LONG_IN_A_COLLECTIVE) -> Cluster:
    """All ranks of one source at this moment.

    Args:
        source: see `devwidget.ranks`.
        served: has an engine answer.
        patience: seconds in one collective after which a rank is said to hang.

    Raises:
        DevwidgetError: if it is none, or nothing of a rank is there.
    """
    asked = time.time()
    if source is None:
        source = find_newest_job()
    if is_view(source):
        return merge(ask_engines(source, patience, served), asked)
    if isinstance(source, str | os.PathLike):
        heard = _hear_paths([pathlib.Path(source)], patience)
    elif isinstance(source, Iterable):
        heard = _hear_paths([pathlib.Path(each) for each in source if isinstance(each, str | os.PathLike)], patience)
    else:
        raise DevwidgetError(Message("{kind} is no source of ranks", kind=type(source).__name__), instead=_SOURCES)
    if not heard:
        why = Message("no process has called devwidget.serve() there, or written its record there")
        raise DevwidgetError(Message("there are no ranks in this source"), why=why, instead=_SOURCES)
    return merge(heard, asked)


def find_newest_job() -> pathlib.Path:
    """Return the folder of this user's job that has started last; raise DevwidgetError if there is none."""
    above = owner_folder()
    folders = [entry for entry in above.iterdir() if entry.is_dir() and list(ranks_in(entry))] if above.is_dir() else []
    if not folders:
        raise DevwidgetError(
            Message("no job of yours answers on this machine"), instead=Message("devwidget.serve() in the training script")
        )
    return max(folders, key=lambda folder: folder.stat().st_mtime)


def _hear_paths(paths: list[pathlib.Path], patience: float) -> list[Heard]:
    """Hear the ranks of all folders, and what each file says; of two of one rank the newer one."""
    files = [path for path in paths if path.is_file()]
    heard = [each for path in paths if path not in files for each in ask_folder(path, patience)]
    newest: dict[int, Heard] = {}
    for each in (*heard, *map(_hear_file, files)):
        if each.rank not in newest or newest[each.rank].taken < each.taken:
            newest[each.rank] = each
    return mark_stale(mark_hung(list(newest.values()), patience))


def _hear_file(path: pathlib.Path) -> Heard:
    """Hear what a rank has written; one that has written that it would answer is asked."""
    try:
        said = load(path, LARGEST_ANSWER)
    except (OSError, ValueError) as error:
        raise DevwidgetError(Message("{name} cannot be read: {error}", name=path.name, error=error)) from None
    if not isinstance(said, RankReport):
        raise DevwidgetError(Message("{name} holds a {kind}, not what one rank said", name=path.name, kind=type(said).__name__))
    if not said.announced:
        return judge_written(said.rank, said)
    refuse_shared(path.absolute().parent)
    return ask_rank(path.absolute().parent, said.rank)


Served = Callable[[], tuple[int, str]]
"""Sees that a process answers, from now on if it has not before: its rank, and the folder of its socket."""
# For an engine to load torch and this package.
FIRST_SECONDS = 30.0


def is_view(source: object) -> bool:
    """Whether this is a view of ipyparallel, or its client; the library is not loaded to find out."""
    return any(module_name(kind).partition(".")[0] == "ipyparallel" for kind in mro_of(type(source)))


def ask_engines(view: Any, patience: float, served: Served) -> list[Heard]:
    """Ask every engine of a view, in which `served` runs; raise DevwidgetError if one could not begin to answer."""
    view = view[:] if not hasattr(view, "apply_async") else view
    places = _find_folders(view, served)
    return ask_ranks(lambda rank: ask_rank(pathlib.Path(places[rank]), rank), sorted(places), patience)


def _find_folders(view: Any, served: Served) -> dict[int, str]:
    """Find where each engine answers; one that has said so is not asked again, because it may be busy then."""
    known = _known.setdefault(view.client, {})
    until = time.monotonic() + FIRST_SECONDS
    waiting = {target: view.client[target].apply_async(served) for target in view.targets if target not in known}
    for target, result in waiting.items():
        try:
            known[target] = result.get(max(0.1, until - time.monotonic()))
        except Exception as error:
            # Whatever was raised in the engine, or on the way.
            raise DevwidgetError(
                Message("engine {target} cannot answer: {error}", target=target, error=error_text(error)), instead=_INSTEAD
            ) from error
    return dict(known[target] for target in view.targets)


# Rank and folder of each engine, by client.
_known: weakref.WeakKeyDictionary[Any, dict[int, tuple[int, str]]] = weakref.WeakKeyDictionary()
_INSTEAD = Message("torch.distributed.init_process_group(...) in each engine, and then ask again")
