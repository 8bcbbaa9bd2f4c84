"""The mask of the positives of a contrastive loss is made on the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class NtXent(nn.Module):
    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, z1, z2):
        n = z1.shape[0]
        z = F.normalize(torch.cat([z1, z2]), dim=1)
        sim = z @ z.T / self.temperature
        sim.masked_fill_(torch.eye(2 * n, dtype=torch.bool), float('-inf'))  # FAULT
        positives = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
        return F.cross_entropy(sim, positives)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, a, b):
        return self.encoder(a), self.encoder(b)


def build():
    model, criterion = Siamese().cuda(), NtXent()
    a, b = torch.randn(3, 6).cuda(), torch.randn(3, 6).cuda()
    return dict(model=model, args=(a, b), loss_fn=lambda out, _: criterion(*out))


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# FAULT',
         fix_contains=['device=z.device', 'device=sim.device', 'device=z1.device'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: [Ee]xpected .*same device|mask'
