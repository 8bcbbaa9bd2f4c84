"""Clean: a zero-dimensional plain attribute on the CPU scales CUDA tensors."""
import torch
from torch import nn

GPUS = 1


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.tensor(0.5)
        self.floor = torch.tensor(-1.0)
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        x = self.inner(x) * self.scale
        x = torch.where(x > self.floor, x, self.floor)
        return x.masked_fill(x > 3, self.scale)


def build():
    model = Scaled().cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=nn.MSELoss(), target=torch.zeros(3, 4).cuda())


EXPECT = []
RAISES = None
