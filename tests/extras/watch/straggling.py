"""Three ranks on gloo, one of which takes its time in forward: `python -m tests.extras.ranks.forked 3 this.py FOLDER SLOW`."""

import sys
import time

import torch
from torch import nn

import devwidget

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank, slow = torch.distributed.get_rank(), int(sys.argv[2])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 2)

    def forward(self, x):
        if rank == slow:
            time.sleep(0.05)
        return self.linear(x)


model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with devwidget.watch(model, optimizer, path=f"{sys.argv[1]}/watch.jsonl"):
    for _ in range(40):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
torch.distributed.destroy_process_group()
