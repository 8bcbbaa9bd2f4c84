"""A mixture of experts writes what its experts compute into a fresh tensor of the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Moe(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList([Expert(width) for _ in range(count)])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(flat).softmax(-1).topk(2, dim=-1)
        out = torch.zeros(flat.shape)  # BIRTH
        for index, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == index)
            out.index_add_(0, rows, weights[rows, place, None] * expert(flat[rows]))  # FAULT
        return out.view_as(x)


def build():
    model = nn.Sequential(nn.Linear(3, 8), Moe(8, 4)).to('cuda')
    x = torch.randn(2, 5, 3, device='cuda')
    return dict(model=model, args=(x,), loss_fn=lambda out, _: out.pow(2).mean())


EXPECT = [
    dict(kind='wrong-device', module='1', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['zeros_like(flat)', 'device=flat.device', 'device=x.device'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
