import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)
        self.scale = torch.ones(2)

    def forward(self, x):
        return self.head(x) * self.scale


model = Scaled().to("cuda:0")
model(torch.randn(4, 8, device="cuda:0"))
