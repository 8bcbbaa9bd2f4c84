"""A sum starts on the host; the wrong edit adds numbers, which have no gradient."""

import torch
from torch import nn


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        total = torch.zeros(())
        for layer in self.layers:
            total += layer(x).pow(2).mean()
        return self.layers[0](x).sum() + total


def make():
    return {"model": Summed().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        total = torch.zeros(())
+        total = torch.zeros((), device=x.device)
"""
WRONG = """
-            total += layer(x).pow(2).mean()
+            total += layer(x).pow(2).mean().item()
"""
SAID = "`layers.1.bias` gets no gradient"
