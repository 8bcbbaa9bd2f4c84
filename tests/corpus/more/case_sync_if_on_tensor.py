"""An `if` on a CUDA tensor in a helper, and a list of values."""
import torch
from torch import nn

GPUS = 1


def healthy(x):
    if torch.isnan(x).any():  # FAULT-1
        raise ValueError('nan')
    return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        h = healthy(self.lin(x))
        order = h.sum(0).argsort().tolist()  # FAULT-2
        return h[:, order]


def build():
    return dict(model=Net().cuda(), args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='host-sync', module='', fault_line='# FAULT-1', birth_line=None,
         fix_contains=['torch.where', 'mask', 'GPU'], severity='warning', fatal=False),
    dict(kind='host-sync', module='', fault_line='# FAULT-2', birth_line=None,
         fix_contains=['GPU', 'mask', 'without'], severity='warning', fatal=False),
]
RAISES = None
