"""Modules are in a plain list; the wrong edit moves them in `forward`, and they are not trained."""

import torch
from torch import nn


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rest = [nn.Linear(4, 4) for _ in range(2)]

    def forward(self, x):
        x = self.first(x)
        for layer in self.rest:
            x = layer(x)
        return x


def make():
    model = Branches().to("cuda:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"model": model, "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum, "optimizer": optimizer}


RIGHT = """
-        self.rest = [nn.Linear(4, 4) for _ in range(2)]
+        self.rest = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
"""
WRONG = """
-            x = layer(x)
+            x = layer.to(x.device)(x)
"""
SAID = "unregistered-tensor"
