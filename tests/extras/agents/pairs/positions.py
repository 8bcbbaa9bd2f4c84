"""Positions are on the host; the wrong edit takes others, which are on the right device."""

import torch
from torch import nn


class Positioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(9, 4), nn.Embedding(9, 4)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1])
        return self.words(tokens) + self.places(positions)


def make():
    tokens = torch.tensor([[3, 1, 4], [1, 5, 2]], device="cuda:0")
    return {"model": Positioned().to("cuda:0"), "batch": tokens, "loss_fn": torch.sum}


RIGHT = """
-        positions = torch.arange(tokens.shape[1])
+        positions = torch.arange(tokens.shape[1], device=tokens.device)
"""
WRONG = """
-        positions = torch.arange(tokens.shape[1])
+        positions = torch.zeros_like(tokens[0])
"""
SAID = "its output differs"
