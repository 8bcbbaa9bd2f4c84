"""Replicas share a plain tensor of the host; the wrong edit copies it to each GPU at each step."""

import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.gate = torch.linspace(0, 1, 4)

    def forward(self, x):
        return self.layer(x) * self.gate


def make():
    model = nn.DataParallel(Gated().to("cuda:0"), [0, 1])
    return {"model": model, "batch": torch.ones(4, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        self.gate = torch.linspace(0, 1, 4)
+        self.register_buffer("gate", torch.linspace(0, 1, 4))
"""
WRONG = """
-        return self.layer(x) * self.gate
+        return self.layer(x) * self.gate.cuda()
"""
SAID = "needless-hop"
