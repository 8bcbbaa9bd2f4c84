"""A loss term is computed in float64 on purpose, then cast back."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 3)

    def forward(self, x):
        cov = (x.double().T @ x.double()) / x.size(0)
        logdet = torch.logdet(cov + torch.eye(4, dtype=torch.float64, device=x.device))
        return self.read(x) * logdet.to(x.dtype)


def build():
    model = Net().cuda()
    y = torch.rand(3, 3, dtype=torch.float64).cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=y, loss_fn=lambda out, y: F.l1_loss(out.double(), y),
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1), steps=2)


EXPECT = []
RAISES = None
