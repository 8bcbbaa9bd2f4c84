"""Under DataParallel a mask of a closure is on the first card."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 2


class Encoder(nn.Module):
    def __init__(self, mask_of):
        super().__init__()
        self.mask_of = mask_of
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        return h * self.mask_of(h)  # CALL


def build():
    band = torch.tril(torch.ones(4, 4)).sum(0).to('cuda:0')  # BIRTH

    def mask_of(h):
        return (band > 1).float() * torch.ones_like(h)  # FAULT

    model = nn.DataParallel(Encoder(mask_of).to('cuda:0'), device_ids=[0, 1])
    return dict(model=model, args=(torch.randn(4, 4, device='cuda:0'),), loss_fn=lambda out, _: out.sum())


EXPECT = [
    dict(kind='wrong-device', module='module', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(h.device)', 'h.device'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Caught RuntimeError in replica 1'
