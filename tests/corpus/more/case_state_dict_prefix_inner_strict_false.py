"""A DataParallel checkpoint goes into the plain model with strict=False."""
import torch
from torch import nn

GPUS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(x)


def build():
    parallel = nn.DataParallel(Net().cuda())
    saved = {'state': parallel.state_dict(), 'epoch': 3}
    model = Net().cuda()
    missing = model.load_state_dict(saved['state'], strict=False)  # FAULT
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='state-dict-prefix', module=None, fault_line='# FAULT', birth_line=None,
         fix_contains=['removeprefix', '.module', 'consume_prefix'], severity='error', fatal=False),
]
RAISES = None
