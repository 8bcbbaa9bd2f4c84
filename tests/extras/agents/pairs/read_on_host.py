"""A value is read on the host at each step; the wrong edit reads it in another way."""

import torch
from torch import nn


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        largest = x.abs().max().item()
        return self.layer(x / largest)


def make():
    return {"model": Normed().to("cuda:0"), "batch": torch.full((2, 4), 3.0, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        largest = x.abs().max().item()
+        largest = x.abs().max()
"""
WRONG = """
-        largest = x.abs().max().item()
+        largest = float(x.abs().max())
"""
SAID = "the step still has host-sync"
