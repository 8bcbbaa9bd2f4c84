"""A float64 buffer from numpy silently turns every activation after it into float64."""
import numpy as np
import torch
from torch import nn

GPUS = 1
RUNS_ON_CPU = False


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('gain', torch.from_numpy(np.linspace(0.5, 1.5, 4)))  # BIRTH

    def forward(self, x):
        return x * self.gain  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.scale = Scale()

    def forward(self, x):
        return self.scale(self.lin(x)).sum(-1)


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-dtype', module='scale', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.float()', 'float32'], severity='warning', fatal=False),
]
RAISES = None
