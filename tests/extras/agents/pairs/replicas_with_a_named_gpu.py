"""Replicas create a tensor on the first GPU; the wrong edit keeps the device in an attribute."""

import torch
from torch import nn


class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.device = torch.device("cuda:0")

    def forward(self, x):
        bias = torch.ones(4, device="cuda:0")
        return self.layer(x) + bias


def make():
    model = nn.DataParallel(Biased().to("cuda:0"), [0, 1])
    return {"model": model, "batch": torch.ones(4, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        bias = torch.ones(4, device="cuda:0")
+        bias = torch.ones(4, device=x.device)
"""
WRONG = """
-        bias = torch.ones(4, device="cuda:0")
+        bias = torch.ones(4, device=self.device)
"""
SAID = "the step fails: RuntimeError"
