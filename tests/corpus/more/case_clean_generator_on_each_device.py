"""Clean: one generator per device type, and CPU noise drawn by the CPU's."""
import torch
from torch import nn

GPUS = 1


class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.rng = torch.Generator('cuda').manual_seed(3)

    def forward(self, x):
        noise = torch.randn(x.shape, device=x.device, generator=self.rng)
        return self.lin(x + noise)


def build():
    model = Sampler().cuda()
    host = torch.Generator().manual_seed(1)
    x = torch.randn(6, 4, generator=host).cuda()
    return dict(model=model, args=(x,), loss_fn=lambda out, _: out.mean())


EXPECT = []
RAISES = None
