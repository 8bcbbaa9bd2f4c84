"""A job whose ranks are forks of one process, which has imported torch for all of them.

`python -m tests.extras.ranks.forked 4 train.py ...`; unlike torchrun it ends no rank because another one has ended. The status
is 1 if any of them failed.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys

import torch.distributed.fsdp
import torch.distributed.tensor.parallel  # noqa: F401

import devwidget  # noqa: F401


def begin(rank: int, ranks: int, port: int) -> int:
    """The process of a rank, 0 in that process itself."""
    child = os.fork()
    if child == 0:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port}
        os.environ.update({name: str(number) for name, number in numbers.items()}, MASTER_ADDR="127.0.0.1")
    return child


def main(ranks: int, *command: str) -> None:
    """Run a program as each rank, and wait for all of them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(ranks):
        if not (child := begin(rank, ranks, port)):
            sys.argv = list(command)
            runpy.run_path(command[0], run_name="__main__")
            return
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(int(any(statuses)))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
