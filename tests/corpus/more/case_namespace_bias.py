"""A bias in a SimpleNamespace that the module keeps."""
import types

import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.extra = types.SimpleNamespace(bias=torch.full((width,), 0.1), name='gate')  # BIRTH

    def forward(self, x):
        return torch.sigmoid(self.mix(x) + self.extra.bias)  # FAULT


def build():
    return dict(model=Gate(4).to('cuda:0'), args=(torch.randn(2, 4, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['register_buffer', 'Parameter', 'ModuleList', 'nn.Buffer'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
