"""A generator yields one mask after the other, all on the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


def sliding_windows(length, width):
    for start in range(0, length, width):
        mask = torch.zeros(length, dtype=torch.bool)  # BIRTH
        mask[start:start + width] = True
        yield mask


class Windowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        h = self.proj(x)
        parts = []
        for mask in sliding_windows(h.shape[1], 2):
            parts.append(h.masked_fill(~mask[None, :, None], 0.0).sum(1))  # FAULT
        return torch.stack(parts, 1)


def build():
    return dict(model=Windowed().cuda(), args=(torch.randn(2, 6, 4).cuda(),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', 'device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: [Ee]xpected .*same device|mask'
