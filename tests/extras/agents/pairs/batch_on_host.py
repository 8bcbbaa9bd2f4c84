"""The batch stays on the host; the wrong edit leaves the whole model there too."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


def make():
    model = Net().to("cuda:0")
    batch = torch.ones(2, 4)
    return {"model": model, "batch": batch, "loss_fn": torch.sum}


RIGHT = """
-    batch = torch.ones(2, 4)
+    batch = torch.ones(2, 4, device="cuda:0")
"""
WRONG = """
-    model = Net().to("cuda:0")
+    model = Net()
"""
SAID = "its output is on cpu instead of cuda:0"
