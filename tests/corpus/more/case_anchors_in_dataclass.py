"""A dataclass of tensors hangs on the module; `.to()` never sees it."""
import dataclasses

import torch
from torch import nn

GPUS = 1


@dataclasses.dataclass
class Grid:
    centres: torch.Tensor
    scale: float = 0.5


class Boxes(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        self.grid = Grid(centres=torch.rand(n, 2))  # BIRTH
        self.offset = nn.Linear(3, 2)

    def forward(self, feats):
        shift = self.offset(feats)
        return self.grid.centres + self.grid.scale * shift  # FAULT


def build():
    model = Boxes().cuda()
    return dict(model=model, args=(torch.rand(6, 3).cuda(),), loss_fn=nn.SmoothL1Loss(), target=torch.rand(6, 2).cuda())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', '.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
