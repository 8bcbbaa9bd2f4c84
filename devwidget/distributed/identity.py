"""Which rank this process is, as its launcher or torch says."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

_NUMBERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
_JOBS = (
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
"""What is the same for all ranks of a job, and mostly another for the next."""
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")


class Identity(NamedTuple):
    """One process of a job, in the order of a RankReport."""

    rank: int
    world_size: int
    host: str
    pid: int
    local_rank: int


def identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """This process.

    Raises:
        DevwidgetError: if neither torch nor the environment says which rank it is.
    """
    found = of_torch() or of_environment(environ)
    if found is None:
        why = Message("`torch.distributed` is not initialised, and the environment has no RANK and WORLD_SIZE")
        raise DevwidgetError(
            Message("this process is no rank"), why=why, instead=Message("call it after torch.distributed.init_process_group")
        )
    local = next((int(environ[name]) for name in _LOCAL if environ.get(name, "").isdigit()), -1)
    return Identity(*found, socket.gethostname(), os.getpid(), local)


def job_name(environ: Mapping[str, str] = os.environ) -> str:
    """What launchers call the job of this process; "" where none does."""
    return " ".join(environ[name] for name in _JOBS if environ.get(name))


def of_environment(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Rank and number of ranks, as torchrun, Slurm or MPI has set them."""
    for rank, size in _NUMBERS:
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return int(environ[rank]), int(environ[size])
    return None


def of_torch() -> tuple[int, int] | None:
    """Rank and number of ranks, as `torch.distributed` has them; nothing is loaded to ask."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()
