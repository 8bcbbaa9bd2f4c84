"""Noise on the GPU is drawn with a CPU generator."""
import torch
from torch import nn

GPUS = 1


class Sampler(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.rng = rng

    def forward(self, x):
        noise = torch.randn(x.shape, device=x.device, generator=self.rng)  # FAULT
        return self.lin(x + noise)


def build():
    rng = torch.Generator().manual_seed(3)  # BIRTH
    model = Sampler(rng).cuda()
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=["torch.Generator(device=", "torch.Generator('cuda", "device='cuda", 'Generator('], severity='error', fatal=True),
]
RAISES = r"Expected a 'cuda' device type for generator but found 'cpu'"
