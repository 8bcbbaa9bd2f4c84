"""A dataclass batch whose `.to` forgets the mask."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

from dataclasses import dataclass


@dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor

    def to(self, device):
        return Batch(self.tokens.to(device), self.mask)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.read = nn.Linear(4, 2)

    def forward(self, batch):
        h = self.embed(batch.tokens)
        h = h * batch.mask[..., None]  # FAULT
        return self.read(h.sum(1))


def build():
    batch = Batch(torch.randint(0, 10, (2, 5)), torch.ones(2, 5))  # BIRTH
    return dict(model=Net().cuda(), args=(batch.to('cuda'),), target=torch.tensor([0, 1]).cuda(), loss_fn=nn.CrossEntropyLoss())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['mask.to(', 'mask[..., None].to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
