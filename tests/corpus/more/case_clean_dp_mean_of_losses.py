"""The loss is computed inside the wrapped module, and the program takes the mean of what is gathered."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 2


class LossInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 3)

    def forward(self, x, label):
        return F.cross_entropy(self.body(x), label)


def build():
    model = nn.DataParallel(LossInside().to('cuda:0'), device_ids=[0, 1])
    args = torch.randn(6, 5, device='cuda:0'), torch.randint(0, 3, (6,), device='cuda:0')
    return dict(model=model, args=args, loss_fn=lambda losses, _: losses.mean())


EXPECT = []
RAISES = None
