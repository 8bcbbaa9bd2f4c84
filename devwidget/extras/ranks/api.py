"""`devwidget.serve` and `devwidget.ranks`."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from devwidget.capture.devices import read_memory
from devwidget.extras.ranks.agent import Agent
from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.recording import virtual_gpus
from devwidget.records.schema.public_calls import says_what_fits


@says_what_fits
def serve(
    model: nn.Module | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    every: float = 0.0,
    checksums: bool = False,
) -> Agent:
    """Answer questions about this rank, on a socket that only its user can reach, also while it waits in a collective.

    One line in a training script; `devwidget.ranks(folder)` asks, in another process. It only reads: no collective, nothing
    that waits for a GPU, no operator. A rank that nobody asks does nothing but note by what each step was taken. At an
    exception that nothing catches, and at SIGTERM or SIGHUP, it leaves in the folder what it held, where it was and why.

    Args:
        model: its model; without one the largest that a variable of the main thread holds when somebody asks.
        folder: of the job, the same for all ranks of a machine; without one `$DEVWIDGET_RANKS`, or one that is named after the
            job of torchrun or Slurm. On a file system that several machines share, all of them may write one folder.
        every: seconds after which it writes what it holds, again and again, for who cannot ask on its machine; 0: never.
        checksums: after some steps, compare the parameters that every rank has whole; that reads values, which waits for a GPU.

    Returns:
        The agent, which ends with the process, with its `stop()`, or with a `with` block.

    Raises:
        DevwidgetError: if this process is no rank, the folder is open to others, or torch has no such server.
    """
    return Agent(model, folder, lambda: read_memory(virtual_gpus()), every=every, checksums=checksums)


@says_what_fits
def ranks(source: Any = None, *, patience: float = 5.0) -> Cluster:
    """All ranks of a job in one record, also of one that hangs: their states, each distinct placement once, and findings.

    Args:
        source: the folder in which they answer or have written, several, some files, saved jobs, or what this has returned
            elsewhere; without one the job of this user that has started last on this machine.
        patience: seconds in one collective after which a rank is said to hang.

    Returns:
        A frozen record to print, with `.save(path)`.

    Raises:
        DevwidgetError: if no rank is there, or other users may enter the folder.
    """
    from devwidget.extras.ranks.ask_ranks import hear_ranks
    from devwidget.extras.ranks.records.cluster import may_be_asked_again
    from devwidget.extras.ranks.rules.over_ranks import judge_cluster

    def ask() -> Cluster:
        return judge_cluster(hear_ranks(source, patience=patience))

    return may_be_asked_again(ask(), ask)
