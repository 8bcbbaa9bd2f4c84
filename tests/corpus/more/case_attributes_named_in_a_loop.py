"""Tensors become attributes whose names a loop puts together, and forward reads them with getattr."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        for i in range(2):
            setattr(self, f'scale{i}', torch.rand(4))  # BIRTH

    def forward(self, x):
        for i, layer in enumerate(self.fc):
            x = layer(x) * getattr(self, f'scale{i}')  # FAULT
        return x


def build():
    m = Pyramid().cuda()
    return dict(model=m, args=(torch.randn(5, 4).cuda(),), loss_fn=lambda o, t: o.mean())


EXPECT = [dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['register_buffer', 'Parameter'], severity='error', fatal=True)]
RAISES = 'same device|device'
