"""A float64 target silently promotes the loss."""
import numpy as np
import torch
from torch import nn

GPUS = 1
RUNS_ON_CPU = False


def loss_fn(out, target):
    gap = out - target  # FAULT
    return gap.pow(2).mean()


def build():
    model = nn.Linear(4, 4).cuda()
    y = torch.tensor(np.ones((3, 4))).cuda()  # BIRTH
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=loss_fn, target=y)


EXPECT = [
    dict(kind='wrong-dtype', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.float()', 'float32'], severity='warning', fatal=False),
]
RAISES = None
