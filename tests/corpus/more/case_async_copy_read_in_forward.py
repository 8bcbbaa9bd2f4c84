"""An asynchronous copy to the host is read at once."""
import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x):
        y = self.lin(x)
        host = y.detach().to(device='cpu', non_blocking=True)  # BIRTH
        self.peak = host.abs().max()  # FAULT
        return y


def build():
    return dict(model=Net().cuda(), args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='unsafe-async-copy', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['synchronize', 'non_blocking=False'], severity='error', fatal=False),
]
RAISES = None
