"""Find which rank of a job this process is, without loading torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

_NUMBERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


def rank_of_environment(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Return rank and world size, as set by torchrun, Slurm or MPI."""
    for rank, size in _NUMBERS:
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return int(environ[rank]), int(environ[size])
    return None


def rank_of_torch() -> tuple[int, int] | None:
    """Return rank and world size of `torch.distributed`; nothing is loaded."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()
