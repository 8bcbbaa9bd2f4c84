"""What each rank of a job runs: `training.py KIND`, until its standard input ends or STEPS steps are done."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import devwidget


class Block(nn.Module):
    """Two layers, one of which is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


def wrapped(kind: str, model: nn.Module) -> nn.Module:
    if kind == "fsdp2":
        fully_shard(model.up)
        fully_shard(model, ignored_params=set(model.frozen.parameters()))
    elif kind == "hsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    elif kind == "tp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"], ignored_params=set(model.frozen.parameters()))
    elif kind != "alone":
        return nn.parallel.DistributedDataParallel(model)
    return model


def make_different(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """One fault in each rank but the first."""
    if rank == 1:
        model.frozen.bfloat16()
    elif rank == 2:
        model.frozen.to("meta")
    elif rank == 3:
        for _ in range(3):
            optimizer.step()


def wait_in_states(rank: int) -> None:
    """Rank 0 waits for rank 2, which holds Python's lock; the other two do nothing, and can be stopped and killed."""
    pair = dist.new_group([0, 2])
    if rank == 2:
        ctypes.PyDLL(None).sleep(300)
    elif rank == 0:
        dist.all_reduce(torch.ones(8), group=pair)
    else:
        time.sleep(300)


def train(kind: str, steps: int) -> None:
    torch.manual_seed(0)
    rank, block = dist.get_rank(), Block()
    model = wrapped("alone" if kind == "different" else kind, block)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad])
    if kind == "different":
        make_different(block, optimizer, rank)
    batch, done = torch.randn(8, 16, generator=torch.Generator().manual_seed(rank)), 0
    while done < steps:
        loss = model(batch).square().mean()
        loss.backward()
        if kind == "different":
            dist.all_reduce(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if rank == 0 and steps < 1000:
            print(loss.item().hex(), flush=True)
        if done == 3 and steps >= 1000:
            if kind == "states":
                wait_in_states(rank)
            announce(rank)
        if steps >= 1000:
            time.sleep(0.01)


def announce(rank: int) -> None:
    """Tell the test that this rank has come so far; a rank that hangs is told by the others."""
    with open(f"{os.environ['DEVWIDGET_RANKS']}/ready-{rank}", "w"):
        pass


def main() -> None:
    kind, steps = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    threading.excepthook = lambda args: os._exit(3)
    with devwidget.serve() if os.environ.get("SERVE", "1") == "1" else contextlib.nullcontext():
        if kind == "states":
            announce(dist.get_rank())
        train(kind, steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
