"""Made on the CPU and copied, as it has to be: data, what the host fills, seeded noise, pinned memory, what is small or older."""

import functools

import torch
from torch import nn


@functools.lru_cache
def place_waves(length, device):
    return torch.arange(length).to(device)


def lengths_to_mask(lengths, most):
    mask = torch.arange(most)
    return mask[None] < lengths[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.mask = None
        self.seed = torch.Generator().manual_seed(0)

    def forward(self, x, lengths):
        filled = torch.zeros(len(x), 64)
        for row, length in enumerate(lengths.tolist()):
            filled[row, :length] = 1
        filled = filled.to(x.device)
        mask = (torch.arange(64)[None] < lengths[:, None]).to(x.device)
        told = lengths_to_mask(lengths, 64).to(x.device)
        noise = torch.randn(x.shape, generator=self.seed).to(x.device)
        pinned = torch.zeros(len(x), 64, pin_memory=True).to(x.device, non_blocking=True)
        chosen = torch.device("cpu")
        there = torch.zeros(len(x), 64, device=chosen).to(x.device)
        small = torch.zeros(1, 64).to(x.device)
        if self.mask is None:
            self.mask = torch.ones(256, 64).to(x.device)
        x = x * self.mask + place_waves(4096, x.device)[:64]
        return self.layer(x + noise + pinned + there + small) * filled * mask * told


model = Net().to("cuda")
start = torch.zeros(256, 64).to("cuda")
for _ in range(3):
    x = torch.rand(256, 64).to("cuda")
    lengths = torch.randint(1, 64, (256,))
    model(x + start, lengths).sum().backward()
