"""Zero-dimensional tensors of two GPUs are added in the loss."""
import torch
from torch import nn

GPUS = 2


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3).to('cuda:0')
        self.b = nn.Linear(3, 3).to('cuda:1')

    def forward(self, x):
        h = self.a(x)  # EARLY
        return h, self.b(h.to('cuda:1'))  # BIRTH


def loss_fn(outs, _):
    early, late = outs
    return early.square().mean() + late.square().mean()  # FAULT


def build():
    return dict(model=Two(), args=(torch.randn(6, 4, device='cuda:0'),), loss_fn=loss_fn)


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH', birth_alt=['# EARLY'],
         fix_contains=['.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
