"""A mask is created on the host; the wrong edit names a GPU, and fails on another one."""

import torch
from torch import nn


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        mask = torch.arange(4) > 1
        return self.layer(x) * mask


def make():
    return {"model": Masked().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        mask = torch.arange(4) > 1
+        mask = torch.arange(4, device=x.device) > 1
"""
WRONG = """
-        mask = torch.arange(4) > 1
+        mask = torch.arange(4, device="cuda:0") > 1
"""
SAID = "with model and batch on cuda:1 the step fails: wrong-device"
