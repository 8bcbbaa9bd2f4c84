import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29612", RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo")
x = torch.ones(2, device="cuda:0")
dist.all_reduce(x)
model = DistributedDataParallel(torch.nn.Linear(4, 2).to("cuda:0"), device_ids=[0])
model(torch.rand(3, 4, device="cuda:0")).sum().backward()
print(x, model.module.weight.grad.device)
dist.destroy_process_group()
