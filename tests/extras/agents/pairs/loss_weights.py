"""The class weights of a loss stay on the host; the wrong edit computes the loss there."""

import torch
from torch import nn


class WeightedLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.tensor([1.0, 2.0, 4.0])

    def forward(self, out, target):
        return nn.functional.cross_entropy(out, target, weight=self.weight)


def make():
    loss_fn = WeightedLoss().to("cuda:0")
    target = torch.tensor([0, 2], device="cuda:0")
    return {
        "model": nn.Linear(4, 3).to("cuda:0"), "batch": torch.ones(2, 4, device="cuda:0"), "loss_fn": loss_fn, "target": target
    }  # fmt: skip


RIGHT = """
-        self.weight = torch.tensor([1.0, 2.0, 4.0])
+        self.register_buffer("weight", torch.tensor([1.0, 2.0, 4.0]))
"""
WRONG = """
-        return nn.functional.cross_entropy(out, target, weight=self.weight)
+        return nn.functional.cross_entropy(out.cpu(), target.cpu(), weight=self.weight)
"""
SAID = "its output is on cpu instead of cuda:0"
