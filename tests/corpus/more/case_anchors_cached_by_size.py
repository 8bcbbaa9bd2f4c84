"""A head keeps its anchors in a dict by the size of the map, and fills it at the first call on the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.cache = {}

    def anchors(self, h, w):
        if (h, w) not in self.cache:
            ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing='ij')  # BIRTH
            self.cache[(h, w)] = torch.stack([xs, ys], 0).float()
        return self.cache[(h, w)]

    def forward(self, x):
        out = self.conv(x)
        centre = out[:, :2] + self.anchors(*x.shape[-2:])  # FAULT
        return torch.cat([centre, out[:, 2:].exp()], 1)


def build():
    return dict(model=Head().cuda(), args=(torch.randn(1, 3, 4, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', 'device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
