"""A zero-dimensional CUDA tensor meets CPU tensors that have dimensions."""
import torch
from torch import nn

GPUS = 1


class Temper(nn.Module):
    def __init__(self):
        super().__init__()
        self.heat = nn.Parameter(torch.ones(()))
        self.lin = nn.Linear(4, 3)

    def forward(self, x):
        steps = torch.linspace(0, 1, x.shape[0])  # BIRTH
        cool = steps * self.heat  # FAULT
        return self.lin(x) * cool[:, None]


def build():
    model = Temper().cuda()
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['device=', '.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
