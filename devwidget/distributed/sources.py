"""Where ranks are heard: a folder of sockets and files, files alone, or the engines of ipyparallel."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterable
from typing import Any

from devwidget.distributed.asking import LONG_IN_A_COLLECTIVE, aged, ask_folder, written_only
from devwidget.distributed.engines import Served, ask_engines, is_view
from devwidget.distributed.folder import owner_folder, ranks_in
from devwidget.distributed.unix_http import LARGEST_ANSWER
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.json_io import load
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.merging import Heard, merge
from devwidget.records.ranks.rank import RankReport
from devwidget.records.schema.message import Message

_SOURCES = Message("a folder of ranks, their files, or a view of ipyparallel: devwidget.ranks('runs/today')")


def hear(source: Any, served: Served, *, patience: float = LONG_IN_A_COLLECTIVE) -> Cluster:
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
        source = newest_job()
    if is_view(source):
        return merge(ask_engines(source, patience, served), asked)
    if isinstance(source, str | os.PathLike):
        path = pathlib.Path(source)
        heard = ask_folder(path, patience) if not path.is_file() else _of_files([path])
    elif isinstance(source, Iterable):
        heard = _of_files([pathlib.Path(each) for each in source if isinstance(each, str | os.PathLike)])
    else:
        raise DevwidgetError(Message("{kind} is no source of ranks", kind=type(source).__name__), instead=_SOURCES)
    if not heard:
        why = Message("no process has called devwidget.serve() there, or written its record there")
        raise DevwidgetError(Message("there are no ranks in this source"), why=why, instead=_SOURCES)
    return merge(heard, asked)


def newest_job() -> pathlib.Path:
    """The folder of the job of this user that has started last.

    Raises:
        DevwidgetError: if there is none.
    """
    above = owner_folder()
    folders = [entry for entry in above.iterdir() if entry.is_dir() and list(ranks_in(entry))] if above.is_dir() else []
    if not folders:
        raise DevwidgetError(
            Message("no job of yours answers on this machine"), instead=Message("devwidget.serve() in the training script")
        )
    return max(folders, key=lambda folder: folder.stat().st_mtime)


def _of_files(paths: list[pathlib.Path]) -> list[Heard]:
    """What each file says; of two of one rank the newer one."""
    newest: dict[int, RankReport] = {}
    for path in paths:
        try:
            said = load(path, LARGEST_ANSWER)
        except (OSError, ValueError) as error:
            raise DevwidgetError(Message("{name} cannot be read: {error}", name=path.name, error=error)) from None
        if not isinstance(said, RankReport):
            raise DevwidgetError(
                Message("{name} holds a {kind}, not what one rank said", name=path.name, kind=type(said).__name__)
            )
        if said.rank not in newest or newest[said.rank].taken < said.taken:
            newest[said.rank] = said
    return aged([written_only(rank, said) for rank, said in newest.items()])
