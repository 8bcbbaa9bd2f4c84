"""A property that makes its mask beside the weights."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Attention(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.length = length
        self.qk = nn.Linear(width, 2 * width)

    @property
    def mask(self):
        return torch.ones(self.length, self.length, device=self.qk.weight.device).tril().bool()

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        return (q @ k.transpose(-1, -2)).masked_fill(~self.mask, -1e9).softmax(-1) @ x


def build():
    return dict(model=Attention(8, 5).to('cuda:0'), args=(torch.randn(2, 5, 8, device='cuda:0'),), loss_fn=lambda out, _: out.mean())


EXPECT = [
]
RAISES = None
