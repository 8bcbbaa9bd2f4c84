"""A batch left on the CPU and a bare layer: no line of the user runs at all."""
import torch
from torch import nn

GPUS = 1
EXPECT = [
    dict(kind='wrong-device', module='', fault_line=None, birth_line='# BIRTH', fix_contains=['device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'


def build():
    rows = torch.randn(4, 8)  # BIRTH
    return {'model': nn.Linear(8, 3).cuda(), 'args': (rows,)}
