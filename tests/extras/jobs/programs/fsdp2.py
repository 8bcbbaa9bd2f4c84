"""FSDP2: each rank has a part of every parameter, which is gathered while its block runs."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

rank = int(os.environ["LOCAL_RANK"])
has_gpu = torch.cuda.is_available()
device = torch.device("cuda", rank) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)
dist.init_process_group()

torch.manual_seed(0)
model = nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2))).to(device)
policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    torch.manual_seed(100 + step + rank)
    batch = torch.randn(2, 6, 16).to(device)
    loss = model(batch).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print("loss", total.item())
if rank == 0:
    print("backend", dist.get_backend())
weight = model[0].linear1.weight.full_tensor()
if rank == 0:
    print("loss", weight.sum().item(), weight.device.type == device.type)
dist.destroy_process_group()
