"""A causal mask that a property makes."""
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
        return torch.ones(self.length, self.length).tril().bool()  # BIRTH

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        scores = q @ k.transpose(-1, -2)
        return scores.masked_fill(~self.mask, -1e9).softmax(-1) @ x  # FAULT


def build():
    return dict(model=Attention(8, 5).to('cuda:0'), args=(torch.randn(2, 5, 8, device='cuda:0'),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: '
