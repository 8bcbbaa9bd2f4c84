"""Ranks that `torch.multiprocessing.spawn` begins, each with a GPU."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

kind = "cuda" if torch.cuda.is_available() else "cpu"  # while the module is imported


def train(rank, world_size, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    if kind == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2).to(kind), device_ids=[rank] if kind == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(step + rank)
        loss = model(torch.randn(3, 4).to(kind)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print("loss", loss.item(), flush=True)
    if rank == 0:
        print("device", next(model.parameters()).device, dist.get_backend(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, args=(2, port), nprocs=2, join=True)
