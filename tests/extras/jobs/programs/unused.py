"""DistributedDataParallel over a module of which one step uses one half, and with gradients summed over two batches."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
else:
    dist.init_process_group("gloo")


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.halves = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x, half):
        return self.halves[half](x)


torch.manual_seed(0)
model = DistributedDataParallel(Halves().to(device), find_unused_parameters=True)
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    torch.manual_seed(10 * step + rank)
    with model.no_sync():
        model(torch.randn(2, 4).to(device), step % 2).sum().backward()
    loss = model(torch.randn(2, 4).to(device), (step + 1) % 2).pow(2).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    counts = torch.tensor([step])
    dist.all_reduce(counts)  # on the CPU
    if rank == 0:
        print("loss", loss.item(), counts.item())
dist.destroy_process_group()
