"""A memory bank that object.__setattr__ hides from the module."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Bank(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.key = nn.Linear(width, width)
        object.__setattr__(self, 'bank', torch.randn(8, width))  # BIRTH

    def forward(self, x):
        return (self.key(x) @ self.bank.T).logsumexp(-1)  # FAULT


def build():
    return dict(model=Bank(4).to('cuda:0'), args=(torch.randn(3, 4, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['register_buffer', 'Parameter', 'nn.Buffer', '.to(', 'device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
