"""The memory of a reader is a named tuple made by its trainer."""
from typing import NamedTuple

import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class State(NamedTuple):
    keys: torch.Tensor
    values: torch.Tensor


def blank(rows, width):
    return State(torch.zeros(rows, width), torch.zeros(rows, width))  # BIRTH


class Memory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask = nn.Linear(width, width)

    def forward(self, x, state):
        weights = (self.ask(x) @ state.keys.T).softmax(-1)  # FAULT
        return weights @ state.values


def build():
    model = Memory(6).to('cuda:0')
    return dict(model=model, args=(torch.randn(2, 6, device='cuda:0'), blank(4, 6)), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
