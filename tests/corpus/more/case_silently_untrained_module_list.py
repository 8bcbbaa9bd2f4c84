"""Layers in a plain list are made on the GPU, so nothing fails, but no optimizer ever trains them."""
import torch
from torch import nn

GPUS = 1


class Tower(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.blocks = [nn.Linear(6, 6, device='cuda') for _ in range(depth)]  # BIRTH
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x).relu()  # FAULT
        return self.head(x)


def build():
    model = Tower().cuda()
    opt = torch.optim.Adam(model.parameters())
    return dict(model=model, args=(torch.randn(5, 4).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.randint(0, 2, (5,)).cuda(), optimizer=opt)


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['ModuleList'], severity='error', fatal=False),
]
RAISES = None
