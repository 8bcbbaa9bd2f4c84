"""A CPU scalar accumulates CUDA penalties in place."""
import torch
from torch import nn

GPUS = 1


class Penal(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        total = torch.zeros(())  # BIRTH
        for layer in self.layers:
            x = layer(x)
            total += layer.weight.norm()  # FAULT
        return x.mean() + total


def build():
    model = Penal().cuda()
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out)


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['device=', '.to(', 'new_zeros'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device|output.*cpu'
