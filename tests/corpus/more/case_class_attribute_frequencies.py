"""Frequencies in the body of the class."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Fourier(nn.Module):
    frequencies = 2.0 ** torch.arange(4)  # BIRTH

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        angles = x[:, None] * self.frequencies  # FAULT
        return self.out(torch.cat([angles.sin(), angles.cos()], -1))


def build():
    return dict(model=Fourier().to('cuda:0'), args=(torch.randn(3, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['register_buffer', 'Parameter', 'ModuleList', 'nn.Buffer'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
