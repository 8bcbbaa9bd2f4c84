"""One sample for two GPUs, and a flag that is no tensor."""
import torch
from torch import nn

GPUS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x, flag=False):
        return self.lin(x)


def build():
    model = nn.DataParallel(Net().cuda())  # BIRTH
    x = torch.randn(1, 4).cuda()
    return dict(model=model, args=(x,), kwargs={'flag': True}, loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='parallel-io', module='', module_alt=['module', None], fault_line=None, birth_line='# BIRTH',
         fix_contains=['drop_last', 'batch', 'device_ids'], severity='error', fatal=True),
]
RAISES = r'missing 1 required positional argument'
