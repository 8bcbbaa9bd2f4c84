"""Clean: stages on three GPUs, a skip connection moved once, the loss back on the first."""
import torch
from torch import nn

GPUS = 3


class Pipe(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList(nn.Linear(6, 6).to(f'cuda:{i}') for i in range(3))

    def forward(self, x):
        skip = x
        for stage in self.stages:
            x = stage(x.to(stage.weight.device)).relu()
        return x + skip.to(x.device)


def build():
    model = Pipe()
    return dict(model=model, args=(torch.randn(4, 6, device='cuda:0'),), loss_fn=nn.MSELoss(),
                target=torch.zeros(4, 6, device='cuda:2'), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


EXPECT = []
RAISES = None
