"""The state of an LSTM on the first GPU goes to a layer on the second without a move."""
import torch
from torch import nn

GPUS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True).to('cuda:0')
        self.out = nn.Linear(6, 2).to('cuda:1')

    def forward(self, x):
        _, (h, c) = self.lstm(x)  # BIRTH
        return self.out(h[-1])  # FAULT


def build():
    return dict(model=Net(), args=(torch.randn(3, 5, 4, device='cuda:0'),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='out', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
