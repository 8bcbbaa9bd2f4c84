"""A refinement loop visits the host at every turn."""
import torch
from torch import nn

GPUS = 1


class Refine(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(3):
            y = self.lin(x)
            low = y.cpu().sort(-1).values  # OUT
            x = low.to(x.device)  # FAULT
        return x


def build():
    return dict(model=Refine().cuda(), args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='ping-pong', module='', fault_line='# FAULT', birth_line='# OUT',
         fix_contains=['once', 'same device', 'group', 'stay'], severity='warning', fatal=False),
]
RAISES = None
