"""Code moves a plain attribute itself at every call: right, but a copy each time."""
import torch
from torch import nn

GPUS = 1


class Weighted(nn.Module):
    def __init__(self, n=512):
        super().__init__()
        self.weights = torch.linspace(0, 1, n)  # BIRTH
        self.inner = nn.Linear(n, 4)

    def forward(self, x):
        w = self.weights.to(x.device)  # FAULT
        return self.inner(x * w)


def build():
    model = Weighted().cuda()
    return dict(model=model, args=(torch.randn(3, 512).cuda(),), loss_fn=nn.MSELoss(), target=torch.zeros(3, 4).cuda())


EXPECT = [
    dict(kind='needless-hop', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', 'buffer'], severity='warning', fatal=False),
]
RAISES = None
