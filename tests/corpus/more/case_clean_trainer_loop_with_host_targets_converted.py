"""Targets of several dtypes are cast in the loss on purpose."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 1)

    def forward(self, x):
        return self.read(x).squeeze(-1)


def loss_fn(out, y):
    y = y.to(device=out.device, dtype=out.dtype, non_blocking=True)
    return F.binary_cross_entropy_with_logits(out, y) + F.mse_loss(out.sigmoid(), y)


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=torch.tensor([0, 1, 0], dtype=torch.float64),
                loss_fn=loss_fn, optimizer=torch.optim.AdamW(model.parameters()), steps=2)


EXPECT = []
RAISES = None
