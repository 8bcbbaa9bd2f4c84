"""A job whose ranks train with DDP and with tensors of a mesh, as they are and recorded by torch's profiler.

`python -m tests.distributed.forked 2 tests/profiler_engine/ranks.py` prints its figures, and exits with 1 where anything
differs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_module, distribute_tensor
from torch.distributed.tensor.placement_types import Shard

import devwidget
from tests.beside_ranks import train
from tests.beside_threads import SEEDS

STEPS = 5


def train_on_mesh(seed: int) -> list[float]:
    """Losses and sums of gradients of a module whose parameters are on a mesh."""
    torch.manual_seed(seed)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = distribute_module(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), mesh)
    batch = distribute_tensor(torch.randn(8, 6), mesh, [Shard(0)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = []
    for _ in range(STEPS):
        loss = model(batch).square().mean()
        loss.backward()
        told += [loss.full_tensor().item(), *(each.grad.full_tensor().sum().item() for each in model.parameters())]
        optimizer.step()
        optimizer.zero_grad()
    return told


def run_all(watched: Callable[[], Any]) -> list[list[float]]:
    """Each training in a recording of its own, or in none."""
    told = []
    for training in (train, train_on_mesh):
        for seed in range(SEEDS):
            with watched():
                told.append(training(seed))
    return told


def main() -> int:
    """Run the job in this process; 0 if nothing differs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    alone = run_all(contextlib.nullcontext)
    recorded = run_all(lambda: devwidget.record(engine="profiler"))
    different = sum(one != other for one, other in zip(alone, recorded, strict=True))
    print(f"rank {dist.get_rank()}: {len(alone)} trained, {different} differ")
    dist.destroy_process_group()
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
