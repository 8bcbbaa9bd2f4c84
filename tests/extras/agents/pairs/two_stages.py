"""The second stage gets its input on the first GPU; the wrong edit moves the stage in `forward`."""

import torch
from torch import nn


class Stages(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4).to("cuda:0")
        self.second = nn.Linear(4, 64).to("cuda:1")

    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden)


def make():
    return {"model": Stages(), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        return self.second(hidden)
+        return self.second(hidden.to(self.second.weight.device))
"""
WRONG = """
-        return self.second(hidden)
+        return self.second.to(hidden.device)(hidden)
"""
SAID = "its output is on cuda:0 instead of cuda:1"
