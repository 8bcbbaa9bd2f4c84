"""`copy_` with non_blocking into a host buffer, read before any synchronisation."""
import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x):
        y = self.lin(x)
        host = torch.empty(3, 2)
        host.copy_(y.detach(), non_blocking=True)  # BIRTH
        scale = host.abs().sum()  # FAULT
        return y / (1 + scale)


def build():
    return dict(model=Net().cuda(), args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='unsafe-async-copy', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['synchronize', 'non_blocking=False'], severity='error', fatal=False),
]
RAISES = None
