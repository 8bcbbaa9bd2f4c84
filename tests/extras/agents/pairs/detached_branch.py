"""A factor is on the host; the wrong edit detaches the branch that it scales."""

import torch
from torch import nn


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        factor = torch.full((4,), 0.5)
        return self.left(x) + self.right(x) * factor


def make():
    return {"model": Branched().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        factor = torch.full((4,), 0.5)
+        factor = torch.full((4,), 0.5, device=x.device)
"""
WRONG = """
-        return self.left(x) + self.right(x) * factor
+        return self.left(x) + self.right(x).detach() * factor.to(x.device)
"""
SAID = "`right.bias` gets no gradient"
