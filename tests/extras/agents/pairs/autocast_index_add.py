"""Autocast makes the source half precision; the wrong edit cuts its gradient with the cast."""

import torch
from torch import nn


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.skip = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            values = self.layer(x)
            sums = torch.zeros(2, 4, device=x.device)
            index = torch.zeros(len(x), dtype=torch.long, device=x.device)
            return sums.index_add(0, index, values) + self.skip(x)[:2]


def make():
    return {"model": Pooled().to("cuda:0"), "batch": torch.ones(3, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-            return sums.index_add(0, index, values) + self.skip(x)[:2]
+            return sums.index_add(0, index, values.to(sums.dtype)) + self.skip(x)[:2]
"""
WRONG = """
-            return sums.index_add(0, index, values) + self.skip(x)[:2]
+            return sums.index_add(0, index, values.detach().float()) + self.skip(x)[:2]
"""
SAID = "`layer.bias` gets no gradient"
