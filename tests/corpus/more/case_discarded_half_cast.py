"""The result of `.half()` is thrown away before a half-precision layer."""
import torch
from torch import nn

GPUS = 1
RUNS_ON_CPU = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4).half()

    def forward(self, x):
        x.half()  # BIRTH
        return self.lin(x)  # FAULT


def build():
    return dict(model=Net().cuda(), args=(torch.randn(3, 4).cuda(),), backward=False)


EXPECT = [
    dict(kind='unassigned-move', module='lin', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['x = x.half()'], severity='error', fatal=True),
]
RAISES = r'mat1 and mat2 (must|to) have the same dtype'
