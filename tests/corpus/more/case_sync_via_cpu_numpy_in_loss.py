"""Hungarian matching in the loss goes through numpy."""
import numpy as np
import torch
from torch import nn

GPUS = 1


def match(cost):
    table = cost.detach().cpu().numpy()  # FAULT
    order = np.argsort(table.sum(1)).copy()
    return torch.from_numpy(order).to(cost.device)


def loss_fn(out, target):
    cost = torch.cdist(out, target)
    return cost[match(cost)].diagonal().mean()


def build():
    model = nn.Linear(4, 2).cuda()
    return dict(model=model, args=(torch.randn(5, 4).cuda(),), loss_fn=loss_fn, target=torch.randn(5, 2).cuda())


EXPECT = [
    dict(kind='host-sync', module=None, fault_line='# FAULT', birth_line=None,
         fix_contains=['GPU', 'torch'], severity='warning', fatal=False),
]
RAISES = None
