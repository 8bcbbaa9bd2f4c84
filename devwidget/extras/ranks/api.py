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
    """Answer queries about this rank, even while it waits in a collective.

    Add one line to the training script; `devwidget.ranks(folder)` queries it from another process. It only reads: no
    collective, no sync, no op. Between queries, a rank records only which optimizer took each step. On an uncaught exception,
    and on SIGTERM or SIGHUP, it saves to the folder what it held, where it was and why it ended.

    Args:
        model: Its model; by default the largest one that a variable of the main thread refers to at the query.
        folder: Folder of the job, the same for all ranks of a machine; by default `$DEVWIDGET_RANKS`, or one named after the
            job of torchrun or Slurm. Several machines may share a folder on a shared file system.
        every: Seconds between reports that it saves regularly, for machines that you cannot query; 0 for none.
        checksums: After some steps, compare the parameters that every rank has in full; that reads values, which syncs.

    Returns:
        The agent, which ends with the process, with its `stop()`, or with a `with` block.

    Raises:
        DevwidgetError: If this process is not a rank, other users have access to the folder, or torch has no such server.
    """
    return Agent(model, folder, lambda: read_memory(virtual_gpus()), every=every, checksums=checksums)


@says_what_fits
def ranks(source: Any = None, *, patience: float = 5.0) -> Cluster:
    """Return the states, placements and findings of all ranks of a job, even if it hangs.

    Args:
        source: Folder in which the ranks answer or have saved reports, several folders, files, saved jobs, or results of this
            function from elsewhere; by default your most recent job on this machine.
        patience: Seconds in one collective after which a rank counts as hung.

    Returns:
        A frozen record to print, with `.save(path)`.

    Raises:
        DevwidgetError: If there is no rank, or other users have access to the folder.
    """
    from devwidget.extras.ranks.ask_ranks import hear_ranks
    from devwidget.extras.ranks.records.cluster import may_be_asked_again
    from devwidget.extras.ranks.rules.over_ranks import judge_cluster

    def ask() -> Cluster:
        return judge_cluster(hear_ranks(source, patience=patience))

    return may_be_asked_again(ask(), ask)
