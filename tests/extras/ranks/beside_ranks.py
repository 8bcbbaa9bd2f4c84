"""A job that trains one model in all its processes, while a thread of the first traces and records models of its own.

`python -m tests.extras.ranks.forked 4 tests/extras/ranks/beside_ranks.py SECONDS` prints its figures; it
exits with 1 where a loss of any
process differs from that of the same training alone, or where the thread raised.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.beside_threads import SEEDS, Program, made

STEPS = 10


def train(seed: int) -> list[float]:
    """The losses of a short training in all processes, each with a batch of its own."""
    model, _, _ = made(1, seed)
    _, x, y = made(1, SEEDS + seed * dist.get_world_size() + dist.get_rank())
    parallel: nn.Module = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.mse_loss(parallel(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_until(over: threading.Event, alone: list[list[float]], seconds: float) -> tuple[int, int]:
    """How many trainings there were before the time of the first process was over, and how many of them differ."""
    trained, different, until = 0, 0, time.monotonic() + seconds
    goes_on = torch.ones(1)
    while goes_on.item():
        different += train(trained % SEEDS) != alone[trained % SEEDS]
        trained += 1
        goes_on = torch.tensor([float(time.monotonic() < until)])
        dist.broadcast(goes_on, 0)
    over.set()
    return trained, different


def main(seconds: float) -> int:
    """Run the job in this process; 0 if nothing was wrong."""
    faulthandler.enable()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    program, over = Program(0.0), threading.Event()
    alone = [train(seed) for seed in range(SEEDS)]
    beside = threading.Thread(target=program.watch, args=(over,))
    if dist.get_rank() == 0:
        beside.start()
    trained, different = train_until(over, alone, seconds)
    if dist.get_rank() == 0:
        beside.join()
    done = ", ".join(f"{count} {what}" for what, count in sorted(program.counts.items()))
    print(
        f"rank {dist.get_rank()}: {trained} trained with the others, {different} differ; {done}",
        *program.troubles[:3],
        sep="\n",
    )
    dist.destroy_process_group()
    return int(bool(different or program.troubles))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
