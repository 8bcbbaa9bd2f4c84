"""Tensor parallel: the matrices of a block are divided over the ranks, by columns and then by rows."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
kind = "cuda" if torch.cuda.is_available() else "cpu"
if kind == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh(kind, (world_size,))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x):
        return self.down(self.up(self.norm(x)).relu())


torch.manual_seed(0)
model = Block().to(kind)
plan = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1)),
    "down": RowwiseParallel(input_layouts=Shard(-1), output_layouts=Replicate()),
}
model = parallelize_module(model, mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, foreach=True)
for step in range(3):
    torch.manual_seed(step)  # all ranks have the same batch
    batch = torch.randn(2, 4 * world_size, 16).to(kind)
    part = batch.chunk(world_size, dim=1)[rank]
    loss = (model(part) - batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print("loss", loss.item())
if rank == 0:
    print("backend", dist.get_backend())
dist.destroy_process_group()
