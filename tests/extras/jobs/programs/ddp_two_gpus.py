"""DistributedDataParallel over a module that is on two GPUs itself, in the style of PyTorch's tutorial."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
has_gpus = torch.cuda.is_available()
first, second = (f"cuda:{2 * rank}", f"cuda:{2 * rank + 1}") if has_gpus else ("cpu", "cpu")


class TwoParts(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(10, 12).to(first), nn.Linear(12, 5).to(second)
        self.three = nn.Linear(5, 5).to(first)

    def forward(self, x):
        return self.three(self.two(self.one(x.to(first)).relu().to(second)).to(first))


torch.manual_seed(rank)
if has_gpus:
    torch.cuda.set_device(first)
dist.init_process_group("nccl" if has_gpus else "gloo", rank=rank, world_size=world_size)
model = DistributedDataParallel(TwoParts(), gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    torch.manual_seed(10 * step + rank)
    optimizer.zero_grad()
    labels = torch.randn(6, 5).to(first)
    loss = nn.functional.mse_loss(model(torch.randn(6, 10)), labels)
    loss.backward()
    optimizer.step()
    if rank == 0:
        print("loss", loss.item())
devices = {name: str(parameter.grad.device) for name, parameter in model.module.named_parameters()}
if rank == 0:
    print("devices", devices["one.weight"], devices["two.bias"], devices["three.bias"])
dist.destroy_process_group()
