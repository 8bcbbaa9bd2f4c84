"""The generator of a GAN moves; its critic, a global that the loss calls, stays on the CPU.

Source: common two-network training loops, where each network is moved by a line of its own.
"""
import torch
import torch.nn.functional as F
from torch import nn

GPUS = 1

critic = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))  # BIRTH
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, z):
        return self.net(z)


def loss_fn(fake, _):
    score = critic(fake)  # FAULT
    return F.binary_cross_entropy_with_logits(score, torch.ones_like(score))


def build():
    model = Generator().to('cuda:0')
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    return dict(model=model, args=(torch.randn(5, 4, device='cuda:0'),), loss_fn=loss_fn, optimizer=opt)


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=["nn.Linear(8, 1)).to('cuda:0')", 'critic.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
