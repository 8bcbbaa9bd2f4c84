"""Boxes come from numpy in float64: the loss is computed in double."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

import numpy as np


class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 4)

    def forward(self, x):
        return self.read(x)


def build():
    model = Boxes().cuda()
    boxes = torch.from_numpy(np.linspace(0, 1, 12).reshape(3, 4)).cuda()  # BIRTH
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=boxes,
                loss_fn=lambda out, y: F.mse_loss(out, y), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))  # FAULT


EXPECT = [
    dict(kind='wrong-dtype', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.float()', 'float32'], severity='warning', fatal=False),
]
RAISES = None
