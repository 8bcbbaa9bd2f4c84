"""What a rank leaves behind in a folder: what it held at the end of a recording, and its trace."""

from __future__ import annotations

import os
import pathlib

from torch import nn

from devwidget.distributed.folder import file_of, made_private, trace_of, write_whole
from devwidget.distributed.identity import identity
from devwidget.distributed.report import ReadMemory, Reporter, remember_step
from devwidget.records.ranks.steps import step_of
from devwidget.records.schema.writing import dumps
from devwidget.records.trace import Trace


class Written:
    """The files of one rank; no rank waits for another, and whoever reads them puts them together.

    Args:
        path: the folder of the job, the same for all ranks.
        checksums: tell of each parameter that no axis cuts what is in it; that reads values, which waits for a GPU.
        memory: how full each device is.

    Raises:
        DevwidgetError: if this process is no rank, or other users may enter the folder.
    """

    def __init__(self, path: str | os.PathLike[str], checksums: bool, memory: ReadMemory) -> None:
        self._who = identity()
        self._folder = made_private(pathlib.Path(path), for_sockets=False)
        self._checksums, self._memory = checksums, memory

    def write(self, trace: Trace, model: nn.Module | None) -> None:
        """Both files; without a model the largest that a variable of the main thread holds."""
        remember_step(step_of(trace))
        report = Reporter(model, self._memory, counts=False).report(self._who, checksums=self._checksums)
        write_whole(trace_of(self._folder, self._who.rank), dumps(trace))
        write_whole(file_of(self._folder, self._who.rank), dumps(report))
