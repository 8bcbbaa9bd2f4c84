"""A device that is hard-coded in forward fails in the second replica."""
import torch
from torch import nn

GPUS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x):
        bias = torch.ones(3).to('cuda:0')  # BIRTH
        return self.a(x) + bias  # FAULT


def build():
    model = nn.DataParallel(Net().cuda())
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='module', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['x.device', '.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
