"""The losses of a replica come back in a dict: of each a vector is gathered, and their sum is no number."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 2

class WithLosses(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 1)

    def forward(self, x, y):
        return {'ce': F.cross_entropy(self.a(x), y), 'l2': self.b(x).pow(2).mean()}  # FAULT


def total(losses, _):
    return sum(losses.values())


def build():
    m = nn.DataParallel(WithLosses().cuda(), device_ids=[0, 1])
    return dict(model=m, args=(torch.randn(4, 4).cuda(), torch.tensor([0, 1, 2, 0]).cuda()), loss_fn=total)


EXPECT = [dict(kind='parallel-io', module='module', fault_line='# FAULT', birth_line=None, fix_contains=['mean', 'unsqueeze'], severity='error', fatal=True, module_alt=['', None])]
RAISES = 'scalar outputs'
