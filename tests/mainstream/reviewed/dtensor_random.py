import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29613", RANK="0", WORLD_SIZE="1")
dist.init_process_group("cpu:gloo,cuda:gloo")
kind = "cuda" if torch.cuda.is_available() else "cpu"
weight = distribute_tensor(torch.empty(4, 4, device=kind), DeviceMesh(kind, [0]), [Shard(0)])
torch.nn.init.normal_(weight)
print(weight.to_local().device, weight.shape)
dist.destroy_process_group()
