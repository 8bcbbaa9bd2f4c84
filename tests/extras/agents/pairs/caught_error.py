"""A bias is on the host; the wrong edit catches the error and leaves the bias out."""

import torch
from torch import nn


class Careful(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        bias = torch.linspace(-1, 1, 4)
        return self.layer(x) + bias


def make():
    return {"model": Careful().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        bias = torch.linspace(-1, 1, 4)
+        bias = torch.linspace(-1, 1, 4, device=x.device)
"""
WRONG = """
-        return self.layer(x) + bias
+        try:
+            return self.layer(x) + bias
+        except RuntimeError:
+            return self.layer(x)
"""
SAID = "its output differs"
