"""A contrastive queue is a plain attribute, so it stays on the CPU when the model moves."""
import torch
import torch.nn.functional as F
from torch import nn

GPUS = 1


class MoCo(nn.Module):
    def __init__(self, width=6, size=16):
        super().__init__()
        self.query = nn.Linear(8, width)
        self.queue = F.normalize(torch.randn(width, size), dim=0)  # BIRTH

    def forward(self, left, right):
        q = F.normalize(self.query(left), dim=1)
        k = F.normalize(self.query(right), dim=1).detach()
        far = q @ self.queue  # FAULT
        return torch.cat([(q * k).sum(1, keepdim=True), far], 1) / 0.07


def build():
    model = MoCo().cuda()
    batch = torch.randn(4, 8).cuda()
    return dict(model=model, args=(batch, batch + 0.1), target=torch.zeros(4, dtype=torch.long, device='cuda'),
                loss_fn=F.cross_entropy)


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', '.to(q.device)'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
