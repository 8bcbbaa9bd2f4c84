"""The result of a move is discarded; the wrong edit assigns it, and cuts the gradient."""

import torch
from torch import nn


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4).to("cuda:0")
        self.second = nn.Linear(4, 4).to("cuda:1")

    def forward(self, x):
        hidden = self.first(x)
        hidden.to("cuda:1")
        return self.second(hidden)


def make():
    return {"model": Split(), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        hidden.to("cuda:1")
+        hidden = hidden.to("cuda:1")
"""
WRONG = """
-        hidden.to("cuda:1")
+        hidden = hidden.data.to("cuda:1")
"""
SAID = "`first.bias` gets no gradient"
