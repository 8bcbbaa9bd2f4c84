"""A cache of keys and values is allocated without a device and then written and read."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Cache:
    def __init__(self, batch, length, width):
        self.k = torch.zeros(batch, length, width)  # BIRTH
        self.v = torch.zeros(batch, length, width)  # BIRTH-2
        self.filled = 0

    def update(self, k, v):
        end = self.filled + k.shape[1]
        self.k[:, self.filled:end], self.v[:, self.filled:end] = k, v
        self.filled = end
        return self.k[:, :end], self.v[:, :end]


class Attention(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, cache):
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = cache.update(k, v)
        scores = q @ k.transpose(1, 2)  # FAULT
        return scores.softmax(-1) @ v  # FAULT-2


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attn, self.out = nn.Embedding(9, 8), Attention(), nn.Linear(8, 9)

    def forward(self, ids):
        cache = Cache(ids.shape[0], 16, 8)
        h = self.attn(self.embed(ids), cache)
        return self.out(h)


def build():
    return dict(model=Lm().cuda(), args=(torch.randint(0, 9, (2, 4)).cuda(),), backward=False)


EXPECT = [
    dict(kind='wrong-device', module='attn', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', 'device='], severity='error', fatal=True),
    dict(kind='wrong-device', module='attn', fault_line='# FAULT-2', birth_line='# BIRTH-2',
         fix_contains=['.to(', 'device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
