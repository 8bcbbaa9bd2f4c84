"""Clean: members of an ensemble begin with equal weights on two GPUs, and are meant to drift apart."""
import copy

import torch
from torch import nn

GPUS = 2


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        first = nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(12, 3))
        self.members = nn.ModuleList([first.to('cuda:0'), copy.deepcopy(first).to('cuda:1')])

    def forward(self, ids):
        votes = [member(ids.to(member[0].weight.device)).to(ids.device) for member in self.members]
        return torch.stack(votes).mean(0)


def build():
    model = Ensemble()
    return dict(model=model, args=(torch.randint(0, 9, (4, 2), device='cuda:0'),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.randint(0, 3, (4,), device='cuda:0'), optimizer=torch.optim.Adam(model.parameters()))


EXPECT = []
RAISES = None
