"""An index is on the host; the wrong edit selects there, and copies the values twice."""

import torch
from torch import nn


class Ordered(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        order = torch.arange(3, -1, -1)
        return torch.index_select(self.layer(x), 1, order)


def make():
    return {"model": Ordered().to("cuda:0"), "batch": torch.ones(64, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        order = torch.arange(3, -1, -1)
+        order = torch.arange(3, -1, -1, device=x.device)
"""
WRONG = """
-        return torch.index_select(self.layer(x), 1, order)
+        return torch.index_select(self.layer(x).cpu(), 1, order).to(x.device)
"""
SAID = "more to the host"
