"""Clean: autocast, a norm in float32 on purpose, and the loss in float32."""
import torch
import torch.nn.functional as F
from torch import nn

GPUS = 1


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (self.weight * x).to(kind)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.norm = RMSNorm(8)
        self.b = nn.Linear(8, 3)

    def forward(self, x):
        with torch.autocast('cuda', dtype=torch.bfloat16):
            x = self.a(x)
            return self.b(self.norm(x) + x)


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.randn(5, 4).cuda(),), target=torch.randint(0, 3, (5,)).cuda(),
                loss_fn=lambda out, y: F.cross_entropy(out.float(), y))


EXPECT = []
RAISES = None
