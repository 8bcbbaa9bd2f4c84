"""A running mean is on the host; the wrong edit keeps its graph, and the second step fails."""

import torch
from torch import nn


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.mean = torch.zeros(4)

    def forward(self, x):
        hidden = self.layer(x)
        centred = hidden - self.mean
        self.mean = self.mean * 0.9 + hidden.mean(0).detach() * 0.1
        return centred


def make():
    return {"model": Centred().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        self.mean = torch.zeros(4)
+        self.register_buffer("mean", torch.zeros(4))
"""
WRONG = """
-        centred = hidden - self.mean
-        self.mean = self.mean * 0.9 + hidden.mean(0).detach() * 0.1
+        self.mean = self.mean.to(x.device)
+        centred = hidden - self.mean
+        self.mean = self.mean * 0.9 + hidden.mean(0) * 0.1
"""
SAID = "the second step"
