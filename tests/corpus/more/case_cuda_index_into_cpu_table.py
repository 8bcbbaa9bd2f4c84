"""A CPU table in a closure-like helper object is indexed with a CUDA mask."""
import torch
from torch import nn

GPUS = 1
TABLE = torch.arange(10.0)  # BIRTH


def lookup(ids):
    return TABLE[ids]  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, ids):
        return self.lin(lookup(ids).float())


def build():
    return dict(model=Net().cuda(), args=(torch.randint(0, 10, (4, 3)).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', 'cuda', 'device='], severity='error', fatal=True),
]
RAISES = r'indices should be either on cpu or on the same device as the indexed tensor'
