"""The frequencies of a timestep embedding are made on the host in a function that several blocks call."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


import math


def timestep_embedding(timesteps, width, max_period=10000):
    half = width // 2
    exponents = torch.arange(half, dtype=torch.float32) / half  # BIRTH
    freqs = torch.exp(-math.log(max_period) * exponents)
    angles = timesteps[:, None].float() * freqs[None]  # FAULT
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.emb = nn.Linear(8, width)

    def forward(self, x, temb):
        return x + F.silu(self.conv(x) + self.emb(temb)[:, :, None, None])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, x, t):
        temb = timestep_embedding(t, 8)
        h = self.stem(x)
        for block in self.blocks:
            h = block(h, temb)
        return self.head(h)


def build():
    model = UNet().cuda()
    x = torch.randn(2, 1, 8, 8, device='cuda')
    t = torch.randint(0, 1000, (2,), device='cuda')
    return dict(model=model, args=(x, t), loss_fn=F.mse_loss, target=torch.zeros_like(x))


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['device=timesteps.device'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
