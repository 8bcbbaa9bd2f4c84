"""An activation goes to the host for storage and comes straight back."""
import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 2)

    def forward(self, x):
        h = self.a(x)
        kept = {'h': h.cpu()}  # BIRTH
        out = kept['h'].to(x.device)  # FAULT
        return self.b(out)


def build():
    return dict(model=Net().cuda(), args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='needless-hop', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['stay', 'without', '.to('], severity='warning', fatal=False),
]
RAISES = None
