"""SyncBatchNorm: ranks normalize by the statistics of the whole batch, as one process does that has all of it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
has_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if has_gpu else "gloo")
device = f"cuda:{rank}" if has_gpu else "cpu"
if has_gpu:
    torch.cuda.set_device(rank)

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
if has_gpu:
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    torch.manual_seed(step)
    batch = torch.randn(4 * world_size, 3, 6, 6)
    part = batch.chunk(world_size)[rank].to(device) if has_gpu else batch  # the CPU has no SyncBatchNorm: all of it at once
    loss = model(part).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    if rank == 0:
        print("loss", mean.item())
whole = model.module if has_gpu else model
norm = whole[1]
if rank == 0:
    print("loss", norm.running_mean.sum().item())
    print("loss", norm.running_var.sum().item())
whole.eval()
if rank == 0:
    print("loss", whole(part[:1]).sum().item())
dist.destroy_process_group()
