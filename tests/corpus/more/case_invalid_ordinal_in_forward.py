"""Stages are dealt to GPUs counted from one."""
import torch
from torch import nn

GPUS = 2


class Pipe(nn.Module):
    def __init__(self, stages=2):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(stages))

    def place(self):
        for number, part in enumerate(self.parts, 1):
            part.to(f'cuda:{number}')  # FAULT
        return self

    def forward(self, x):
        for part in self.parts:
            x = part(x.to(part.weight.device))
        return x


def build():
    return dict(model=Pipe().place(), args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='invalid-device', module=None, fault_line='# FAULT', birth_line='# FAULT',
         fix_contains=['cuda:0', 'cuda:1', 'number - 1'], severity='error', fatal=True),
]
RAISES = r'invalid device ordinal'
