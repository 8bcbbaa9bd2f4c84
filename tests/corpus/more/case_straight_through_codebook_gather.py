"""A quantiser looks up a codebook that a plain list of stages keeps."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Stage:
    def __init__(self, size, width):
        self.codes = torch.randn(size, width)  # BIRTH

    def __call__(self, x):
        distance = torch.cdist(x, self.codes)  # FAULT
        return self.codes[distance.argmin(-1)]


class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(5, 4)
        self.stages = [Stage(8, 4), Stage(8, 4)]

    def forward(self, x):
        residual, total = self.proj(x), 0.0
        for stage in self.stages:
            q = stage(residual)
            total = total + q
            residual = residual - q
        return self.proj(x) + (total - self.proj(x)).detach()


def build():
    return dict(model=Quantizer().cuda(), args=(torch.randn(3, 5).cuda(),), loss_fn=lambda out, _: out.pow(2).sum())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', 'device=', 'register'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
