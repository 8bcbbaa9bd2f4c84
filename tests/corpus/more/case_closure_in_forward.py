"""A function inside forward makes a window for each head."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Windows(nn.Module):
    def __init__(self, heads=2):
        super().__init__()
        self.mix = nn.ModuleList(nn.Linear(6, 6) for _ in range(heads))

    def forward(self, x):
        def window(size):
            ramp = torch.arange(x.shape[-1], dtype=x.dtype)  # BIRTH
            return (ramp < size).to(x.dtype)

        parts = [
            layer(x)  # FAULT
            * window(
                2 + i,
            )  # note
            for i, layer in enumerate(self.mix)
        ]
        return torch.stack(parts).sum(0)


def build():
    return dict(model=Windows().to('cuda:0'), args=(torch.randn(3, 6, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
