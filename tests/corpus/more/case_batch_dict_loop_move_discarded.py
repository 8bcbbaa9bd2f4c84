"""A loop over a dict batch calls `.to()` and keeps nothing."""
import torch
from torch import nn

GPUS = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x, mask):
        return self.lin(x) * mask  # FAULT


def build():
    model = Net().cuda()
    batch = {'x': torch.randn(3, 4), 'mask': torch.ones(3, 1)}
    for value in batch.values():
        value.to('cuda')  # BIRTH
    return dict(model=model, kwargs=batch, args=(), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='unassigned-move', module='lin', module_alt=[''], fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['=', 'assign'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
