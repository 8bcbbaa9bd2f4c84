"""The gathered output is on cuda:1, the target on cuda:0."""
import torch
from torch import nn

GPUS = 2


def loss_fn(out, y):
    return nn.functional.mse_loss(out, y)  # FAULT


def build():
    model = nn.DataParallel(nn.Linear(4, 3).to('cuda:0'), device_ids=[0, 1], output_device=1)
    y = torch.zeros(6, 3, device='cuda:0')  # BIRTH
    return dict(model=model, args=(torch.randn(6, 4, device='cuda:0'),), target=y, loss_fn=loss_fn)


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', 'output_device'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
