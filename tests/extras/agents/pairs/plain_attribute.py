"""A tensor is a plain attribute; the wrong edit copies it at each step."""

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = torch.full((4,), 2.0)

    def forward(self, x):
        return self.layer(x) * self.scale


def make():
    return {"model": Scaled().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        self.scale = torch.full((4,), 2.0)
+        self.register_buffer("scale", torch.full((4,), 2.0))
"""
WRONG = """
-        return self.layer(x) * self.scale
+        return self.layer(x) * self.scale.to(x.device)
"""
SAID = "the step has needless-hop"
