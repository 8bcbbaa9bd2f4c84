import torch
from torch import nn


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8).to("cuda:0")
        self.second = nn.Linear(8, 2).to("cuda:1")

    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden.to("cuda:1"))


Halves()(torch.randn(4, 8, device="cuda:0"))
