"""Keys are cached on the replica for the next call, and lost."""
import torch
from torch import nn

GPUS = 2


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.last = None

    def forward(self, x):
        h = self.lin(x)
        if self.last is not None:
            h = h + self.last
        self.last = h.detach()  # FAULT
        return h


def build():
    model = nn.DataParallel(Memory().cuda())
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out.mean(), steps=2)


EXPECT = [
    dict(kind='replica-state-lost', module='module', fault_line='# FAULT', birth_line=None,
         fix_contains=['register_buffer', 'DistributedDataParallel', 'outside'], severity='error', fatal=False),
]
RAISES = None
