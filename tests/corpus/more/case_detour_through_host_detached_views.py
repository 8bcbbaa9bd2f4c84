"""cuda:0 to cpu to cuda:1, with only a view in between."""
import torch
from torch import nn

GPUS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8).to('cuda:0')
        self.b = nn.Linear(8, 2).to('cuda:1')

    def forward(self, x):
        h = self.a(x)
        h = h.to('cpu')  # BIRTH
        h = h.view(-1, 8)
        h = h.to('cuda:1')  # FAULT
        return self.b(h)


def build():
    return dict(model=Net(), args=(torch.randn(3, 4).to('cuda:0'),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='needless-hop', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=["to('cuda:1')", 'direct'], severity='warning', fatal=False),
]
RAISES = None
