"""A constant is float64; the wrong edit makes the whole result float64."""

import torch
from torch import nn


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        shift = torch.linspace(0, 1, 4, dtype=torch.float64, device=x.device)
        return self.layer(x + shift)


def make():
    return {"model": Shifted().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        shift = torch.linspace(0, 1, 4, dtype=torch.float64, device=x.device)
+        shift = torch.linspace(0, 1, 4, dtype=x.dtype, device=x.device)
"""
WRONG = """
-        return self.layer(x + shift)
+        return self.layer.double()(x + shift)
"""
SAID = "float64"
