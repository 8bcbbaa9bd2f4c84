"""A mask constant does not fit half precision."""
import torch
from torch import nn

GPUS = 1
RUNS_ON_CPU = False


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(4, 4)

    def forward(self, x, keep):
        scores = self.q(x) @ x.transpose(1, 2)
        scores = scores.masked_fill(~keep, -1e9)  # FAULT
        return scores.softmax(-1)


def build():
    model = Attend().half().cuda()
    x = torch.randn(2, 3, 4).half().cuda()
    return dict(model=model, args=(x, torch.ones(2, 3, 3, dtype=torch.bool).cuda()), backward=False)


EXPECT = [
    dict(kind='wrong-dtype', module='', fault_line='# FAULT', birth_line=None,
         fix_contains=['torch.finfo', 'finfo', "float('-inf')"], severity='error', fatal=True),
]
RAISES = r'value cannot be converted to type .*Half without overflow'
