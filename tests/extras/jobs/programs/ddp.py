"""DistributedDataParallel, in the style of PyTorch's tutorial: each rank has a copy and its part of the batch."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["LOCAL_RANK"])
has_gpu = torch.accelerator.is_available()
device = torch.device(torch.accelerator.current_accelerator().type, rank) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.accelerator.set_device_index(rank)
dist.init_process_group(backend=dist.get_default_backend_for_device(device))

torch.manual_seed(rank)  # DDP sends the parameters of rank 0 to all
model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)).to(device)
model = DistributedDataParallel(model, device_ids=[rank] if has_gpu else None)
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

data = TensorDataset(torch.sin(torch.arange(480.0)).view(48, 10), torch.cos(torch.arange(240.0)).view(48, 5))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler, pin_memory=has_gpu)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    if rank == 0:
        print("backend", dist.get_backend())
        print("loss", total.item())
dist.destroy_process_group()
