"""Rotary tables that a method fills while the module is built."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Rotary(nn.Module):
    def __init__(self, width, length=16):
        super().__init__()
        self.project = nn.Linear(width, width)
        inv_freq = 1.0 / (10000 ** (torch.arange(0, width, 2).float() / width))
        self.register_buffer('inv_freq', inv_freq)
        self._set_tables(length)

    def _set_tables(self, length):
        t = torch.arange(length, dtype=torch.float32)
        angles = torch.outer(t, self.inv_freq)
        angles = torch.cat([angles, angles], -1)
        self.cos = angles.cos()  # BIRTH-1
        self.sin = angles.sin()  # BIRTH-2

    def forward(self, x):
        x = self.project(x)
        a, b = x.chunk(2, -1)
        turned = torch.cat([-b, a], -1)
        out = x * self.cos[: x.shape[1]]  # FAULT-1
        return out + turned * self.sin[: x.shape[1]]  # FAULT-2


def build():
    return dict(model=Rotary(8).to('cuda:0'), args=(torch.randn(2, 5, 8, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT-1', birth_line='# BIRTH-1', fix_contains=['register_buffer', 'Parameter', 'ModuleList', 'nn.Buffer'], severity='error', fatal=True),
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT-2', birth_line='# BIRTH-2', fix_contains=['register_buffer', 'Parameter', 'ModuleList', 'nn.Buffer'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
