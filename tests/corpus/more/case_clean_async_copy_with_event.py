"""Clean: an event is recorded and waited for before the host reads."""
import torch
from torch import nn

GPUS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2).to('cuda:0')
        self.far = nn.Linear(2, 2).to('cuda:1')

    def forward(self, x):
        y = self.lin(x.to('cuda:0', non_blocking=True))
        host = y.detach().to('cpu', non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        done.synchronize()
        bias = host.mean(0)
        return self.far(y.to('cuda:1', non_blocking=True)) + bias.sum()


def build():
    return dict(model=Net(), args=(torch.randn(3, 4).pin_memory(),), loss_fn=lambda out, _: out.mean())


EXPECT = []
RAISES = None
