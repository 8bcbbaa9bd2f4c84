"""Clean: a plain attribute is moved once and kept where it is used."""
import torch
from torch import nn

GPUS = 1


class Weighted(nn.Module):
    def __init__(self, n=64):
        super().__init__()
        self.weights = torch.linspace(0, 1, n)
        self.inner = nn.Linear(n, 4)

    def forward(self, x):
        if self.weights.device != x.device:
            self.weights = self.weights.to(x.device)
        return self.inner(x * self.weights)


def build():
    model = Weighted().cuda()
    return dict(model=model, args=(torch.randn(3, 64).cuda(),), loss_fn=nn.MSELoss(), target=torch.zeros(3, 4).cuda(), steps=3)


EXPECT = []
RAISES = None
