"""Sine and cosine tables sit in a tuple on the module, which `.to()` does not open."""
import torch
from torch import nn

GPUS = 1


def tables(length, width):
    angle = torch.arange(length)[:, None] / 10 ** torch.arange(width)
    return angle.sin(), angle.cos()


class Rotary(nn.Module):
    def __init__(self, length=8, width=4):
        super().__init__()
        self.tables = tables(length, width)  # BIRTH

    def forward(self, x):
        sin, cos = self.tables
        return x * cos[:x.shape[1]] + x.flip(-1) * sin[:x.shape[1]]  # FAULT


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = Rotary()
        self.out = nn.Linear(4, 2)

    def forward(self, *, tokens):
        return self.out(self.rotary(tokens))


def build():
    model = Encoder().to(device='cuda:0')
    return dict(model=model, args=(), kwargs=dict(tokens=torch.randn(2, 5, 4, device='cuda:0')),
                loss_fn=lambda out, _: out.pow(2).sum())


EXPECT = [
    dict(kind='unregistered-tensor', module='rotary', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', '.to(x.device)'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
