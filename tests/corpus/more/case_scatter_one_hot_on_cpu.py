"""A one-hot target made on the CPU is filled with `scatter_` from a CUDA index."""
import torch
from torch import nn

GPUS = 1


def loss_fn(out, target):
    hot = torch.zeros(out.shape)  # BIRTH
    hot.scatter_(1, target.unsqueeze(1), 1.0)  # FAULT
    return nn.functional.mse_loss(out.sigmoid(), hot.to(out.device))


def build():
    model = nn.Sequential(nn.Linear(4, 3)).cuda()
    return dict(model=model, args=(torch.randn(5, 4).cuda(),), target=torch.randint(0, 3, (5,)).cuda(), loss_fn=loss_fn)


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH', birth_alt=[],
         fix_contains=['device=', '.to(', '.cpu()'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
