"""What each rank of a job runs: `training.py WAY,WAY STEPS`, so many steps of each way, or one until it is killed."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pathlib
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
    """Two layers that are trained, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


def wrapped(way: str, model: Block) -> nn.Module:
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way == "fsdp2":
        fully_shard(model.up)
        fully_shard(model, ignored_params=set(model.frozen.parameters()))
    elif way == "hsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    elif way == "tp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"], ignored_params=set(model.frozen.parameters()))
    return model


class Training:
    """A model of one way, and its steps; every rank begins with the same weights and has a batch of its own."""

    def __init__(self, way: str, device: str = "cpu") -> None:
        torch.manual_seed(0)
        self.block = Block().to(device)
        self.model = wrapped(way, self.block)
        self.optimizer = torch.optim.Adam([each for each in self.model.parameters() if each.requires_grad])
        self.batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(dist.get_rank())).to(device)

    def step(self) -> torch.Tensor:
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def train(way: str, steps: int) -> None:
    """So many steps, and more until the test has seen enough of this way; rank 0 says what it loses in the first."""
    training, done = Training(way), 0
    while done < steps or not has_seen_enough(way):
        loss = training.step()
        done += 1
        if dist.get_rank() == 0 and done <= steps:
            print(loss.item().hex(), flush=True)
        if done == 3:
            announce(way)
        time.sleep(0.005)


def has_seen_enough(way: str) -> bool:
    """What rank 0 finds, so that all of them stop at one step."""
    enough = torch.tensor([(folder() / f"enough-{way}").exists()])
    dist.broadcast(enough, 0)
    return bool(enough)


def train_differently() -> None:
    """One fault in each rank but the first; their losses are added up, so that they meet at each step."""
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    training = Training("alone", "cuda")
    if rank == 1:
        training.block.frozen.bfloat16()
    elif rank == 2:
        training.block.frozen.to("cuda:0")
    elif rank == 3:
        for _ in range(3):
            training.optimizer.step()
    while True:
        dist.all_reduce(training.step())
        announce("different")
        time.sleep(0.01)


def wait_in_states() -> None:
    """Rank 0 waits for rank 2, which holds Python's lock; the other two do nothing, and can be stopped and killed."""
    training, rank = Training("ddp"), dist.get_rank()
    for _ in range(3):
        training.step()
    pair = dist.new_group([0, 2])
    announce("states")
    if rank == 2:
        ctypes.PyDLL(None).sleep(300)
    elif rank == 0:
        dist.all_reduce(torch.ones(8), group=pair)
    else:
        time.sleep(300)


def folder() -> pathlib.Path:
    return pathlib.Path(os.environ["DEVWIDGET_RANKS"])


def announce(way: str) -> None:
    """Tell the test that this rank has come so far."""
    (folder() / f"ready-{way}-{dist.get_rank()}").touch()


def main() -> None:
    ways, steps = sys.argv[1].split(","), int(sys.argv[2])
    dist.init_process_group("gloo")
    threading.excepthook = lambda args: os._exit(3)
    cards = devwidget.simulate(4) if ways == ["different"] else contextlib.nullcontext()
    with cards, devwidget.serve() if os.environ.get("SERVE", "1") == "1" else contextlib.nullcontext():
        for way in ways:
            if way == "different":
                train_differently()
            elif way == "states":
                wait_in_states()
            else:
                train(way, steps)
                gc.collect()  # steps are counted of the optimizers that are alive
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
