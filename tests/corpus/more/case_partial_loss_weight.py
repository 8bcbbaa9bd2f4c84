"""Class weights inside a functools.partial loss."""
import functools

import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


def build():
    model = nn.Linear(4, 3).to('cuda:0')
    weight = torch.tensor([1.0, 2.0, 0.5])  # BIRTH
    criterion = functools.partial(F.cross_entropy, weight=weight)

    def loss(out, target):
        return criterion(out, target)  # FAULT

    return dict(model=model, args=(torch.randn(5, 4, device='cuda:0'),), target=torch.randint(0, 3, (5,), device='cuda:0'), loss_fn=loss)


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
