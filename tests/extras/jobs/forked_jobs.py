"""Runs programs as jobs, each on virtual GPUs and on the CPU; their ranks are forks of one process, which has imported torch.

`python -m tests.extras.jobs.forked_jobs RANKS GPUS FOLDER PROGRAM ...` leaves in the folder what each rank prints.
A fork begins its virtual GPUs itself, as a process that inherits them does.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel

import devwidget
from devwidget.cli.inherited_gpus import begin_with_torch

LONGEST_S = 100
WAYS = ("cpu", "cuda")
LAUNCHERS = ("notebook",)
"""Programs that begin their ranks themselves."""


def run_job(program: Path, way: str, ranks: int, gpus: int, folder: Path) -> None:
    """Run one program in one way, and wait for its ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    numbers = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
    for rank in range(1 if program.stem in LAUNCHERS else ranks):
        child = os.fork()
        if not child:
            os.environ["RANKS"] = str(ranks)
            if program.stem not in LAUNCHERS:
                numbers |= {"RANK": rank, "LOCAL_RANK": rank}
                os.environ.update({name: str(value) for name, value in numbers.items()})
            os._exit(run_rank(program, way, rank, gpus, folder))
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def run_rank(program: Path, way: str, rank: int, gpus: int, folder: Path) -> int:
    """The process of one rank; its status."""
    signal.alarm(LONGEST_S)
    for stream in (1, 2):
        os.dup2(os.open(folder / f"{program.stem}-{way}-{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
    if way == "cuda":
        begin_with_torch(f"gpus={gpus}")
    sys.argv = [str(program)]
    try:
        runpy.run_path(str(program), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main(ranks: int, gpus: int, folder: Path, *programs: Path) -> None:
    """Run all programs in both ways."""
    torch.set_num_threads(1)
    with devwidget.simulate(1):
        pass  # what it loads is loaded once, for all ranks
    for program in programs:
        for way in WAYS:
            run_job(program, way, ranks, gpus, folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:]))
