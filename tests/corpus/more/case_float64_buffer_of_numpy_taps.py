"""A filter from numpy is a float64 buffer of the root: the parameters below it are float32, and so is the input."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

import numpy as np

class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        taps = np.hanning(5) / np.hanning(5).sum()
        self.register_buffer('taps', torch.from_numpy(taps).view(1, 1, -1))  # BIRTH
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(F.conv1d(x.unsqueeze(1), self.taps, padding=2).squeeze(1))  # FAULT


def build():
    m = Filter().cuda()
    return dict(model=m, args=(torch.randn(3, 8).cuda(),), loss_fn=lambda o, t: o.mean())


EXPECT = [dict(kind='wrong-dtype', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['float', 'dtype'], severity='error', fatal=True)]
RAISES = 'dtype|type'
