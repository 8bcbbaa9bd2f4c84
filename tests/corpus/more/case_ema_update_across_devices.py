"""The EMA shadow was deep-copied before the model moved."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

import copy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 2)  # BIRTH

    def forward(self, x):
        return self.read(x)


class Ema:
    def __init__(self, model):
        self.shadow = copy.deepcopy(model)  # COPIED

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(0.9).add_(p, alpha=0.1)  # FAULT


def build():
    model = Net()
    ema = Ema(model)
    model.cuda()

    def loss_fn(out, y):
        ema.update(model)
        return F.cross_entropy(out, y)

    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=torch.tensor([0, 1, 0]).cuda(), loss_fn=loss_fn)


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH', birth_alt=['# COPIED'],
         fix_contains=['.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
