"""Scalars of the host in a namespace, the class and a default."""
import types

import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Gate(nn.Module):
    temperature = torch.tensor(2.0)

    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.extra = types.SimpleNamespace(shift=torch.tensor(0.1))

    def forward(self, x, scale=torch.tensor(3.0)):
        return torch.sigmoid(self.mix(x) / self.temperature + self.extra.shift) * scale


def build():
    return dict(model=Gate(4).to('cuda:0'), args=(torch.randn(2, 4, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
]
RAISES = None
