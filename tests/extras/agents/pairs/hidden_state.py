"""The first hidden state is on the host; the wrong edit makes it random."""

import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 8, batch_first=True)

    def forward(self, x):
        hidden = torch.zeros(1, len(x), 8)
        return self.rnn(x, hidden)[0]


def make():
    return {"model": Recurrent().to("cuda:0"), "batch": torch.ones(2, 3, 4, device="cuda:0"), "loss_fn": torch.sum}


RIGHT = """
-        hidden = torch.zeros(1, len(x), 8)
+        hidden = torch.zeros(1, len(x), 8, device=x.device)
"""
WRONG = """
-        hidden = torch.zeros(1, len(x), 8)
+        hidden = torch.randn(1, len(x), 8, device=x.device)
"""
SAID = "random"
