"""A smoothing kernel that is the default of an argument."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


def smooth(x, kernel=torch.ones(1, 1, 3) / 3):  # BIRTH
    return F.conv1d(x[:, None], kernel, padding=1)[:, 0]  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x):
        return smooth(self.a(x))


def build():
    return dict(model=Net().to('cuda:0'), args=(torch.randn(3, 6, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: '
