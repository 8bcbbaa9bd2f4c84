"""A closure adds noise that was drawn on the CPU."""
import torch
from torch import nn

GPUS = 1


def noisy(width):
    bump = torch.randn(width)  # BIRTH

    def apply(x):
        return x + bump  # FAULT

    return apply


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.act(self.lin(x))


def build():
    model = Net().cuda()
    object.__setattr__(model, 'act', noisy(4))
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(x.device)', 'device='], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
