"""A pipeline: each rank has some of the layers, and micro-batches pass from rank to rank."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group()

for kind in (ScheduleGPipe, Schedule1F1B):
    torch.manual_seed(rank)
    part = nn.Sequential(nn.Linear(16, 16), nn.Tanh()).to(device)
    stage = PipelineStage(part, rank, world_size, device)
    schedule = kind(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.5)
    for step in range(2):
        torch.manual_seed(50 + step)
        batch, target = torch.randn(8, 16).to(device), torch.randn(8, 16).to(device)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        elif rank == world_size - 1:
            losses = []
            schedule.step(target=target, losses=losses)
            print("loss", torch.stack(losses).mean().item())
        else:
            schedule.step()
        optimizer.step()
if rank == world_size - 1:
    print("backend", dist.get_backend())
dist.destroy_process_group()
