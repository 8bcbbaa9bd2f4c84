"""A hand-written gradient that uses a scale kept in the context."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.scale = torch.linspace(0.5, 1.5, x.shape[-1])  # BIRTH
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.scale  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, x):
        return self.b(Scaled.apply(self.a(x)))


def build():
    return dict(model=Net().to('cuda:0'), args=(torch.randn(3, 4, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True, module_alt=[None]),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
