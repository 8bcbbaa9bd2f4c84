"""Values of a GPU are read by NumPy; the wrong edit goes through the host."""

import torch
from torch import nn


class Clipped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.layer(x)
        bound = torch.from_numpy(hidden.detach().numpy()).abs().max()
        return hidden.clamp(max=bound)


def make():
    return {"model": Clipped().to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        bound = torch.from_numpy(hidden.detach().numpy()).abs().max()
+        bound = hidden.detach().abs().max()
"""
WRONG = """
-        bound = torch.from_numpy(hidden.detach().numpy()).abs().max()
+        bound = torch.from_numpy(hidden.detach().cpu().numpy()).abs().max().to(x.device)
"""
SAID = "host-sync"
