"""A metric inside the loss calls `.numpy()` on a CUDA tensor."""
import torch
from torch import nn

GPUS = 1


def loss_fn(out, target):
    hits = (out.detach().argmax(-1) == target).numpy()  # FAULT
    return nn.functional.cross_entropy(out, target) * (2 - float(hits.mean()))


def build():
    model = nn.Linear(4, 3).cuda()
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=loss_fn, target=torch.randint(0, 3, (6,)).cuda())


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line=None,
         fix_contains=['.cpu()'], severity='error', fatal=True),
]
RAISES = r"can't convert cuda:0 device type tensor to numpy"
