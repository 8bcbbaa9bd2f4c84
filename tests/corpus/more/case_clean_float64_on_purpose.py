"""Clean: a sum is accumulated in float64 on purpose, and a 0-dim float64 constant promotes nothing."""
import math

import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.log2 = torch.tensor(math.log(2.0), dtype=torch.float64)

    def forward(self, x):
        x = self.lin(x)
        total = x.double().pow(2).sum(-1, keepdim=True)
        mean = (x.double() - total / 4).float()
        return mean * self.log2


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = []
RAISES = None
