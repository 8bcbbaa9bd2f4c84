"""A list of layers stays on the CPU and is in no optimizer: one cause, one finding."""
import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.extra = [nn.Linear(4, 4), nn.Linear(4, 4)]  # BIRTH

    def forward(self, x):
        x = self.stem(x)
        for layer in self.extra:
            x = layer(x)  # FAULT
        return x


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean(),
                optimizer=torch.optim.Adam(model.parameters()))


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['ModuleList'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
