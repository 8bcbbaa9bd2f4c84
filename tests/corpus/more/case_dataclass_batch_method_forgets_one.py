"""The `to` of a batch class moves two of its three fields."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


from dataclasses import dataclass


@dataclass
class Batch:
    tokens: torch.Tensor
    lengths: torch.Tensor
    labels: torch.Tensor

    def to(self, device):
        return Batch(self.tokens.to(device), self.lengths.to(device), self.labels)  # MOVE


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, batch):
        h = self.embed(batch.tokens)
        keep = torch.arange(h.shape[1], device=h.device) < batch.lengths[:, None]
        pooled = (h * keep[..., None]).sum(1) / batch.lengths[:, None]
        return F.cross_entropy(self.head(pooled), batch.labels)  # FAULT


def collate(rows):
    tokens = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    return Batch(tokens, torch.tensor([len(r[0]) for r in rows]), torch.tensor([r[1] for r in rows]))  # BIRTH


def build():
    rows = [(torch.randint(1, 20, (n,)), n % 2) for n in (3, 5, 2)]
    batch = collate(rows).to('cuda:0')
    return dict(model=Reader().to('cuda:0'), args=(batch,), backward=True)


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH', birth_alt=['# MOVE'],
         fix_contains=['.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
