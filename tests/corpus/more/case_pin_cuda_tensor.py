"""A tensor that is already on the GPU is pinned."""
import torch
from torch import nn

GPUS = 1


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 3)

    def forward(self, batch):
        x = batch['x'].pin_memory()  # FAULT
        return self.lin(x.cuda(non_blocking=True))


def build():
    model = Feed().cuda()
    batch = {'x': torch.randn(6, 4).cuda()}  # BIRTH
    return dict(model=model, args=(batch,), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.cpu()', "'cpu'", 'pin'], severity='error', fatal=True),
]
RAISES = r"cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
