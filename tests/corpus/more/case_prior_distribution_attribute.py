"""A `torch.distributions.Normal` held by the model keeps its mean on the CPU."""
import torch
from torch import nn
from torch.distributions import Normal

GPUS = 1


class Latent(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.encode = nn.Linear(6, width)
        self.prior = Normal(torch.zeros(width), torch.ones(width))  # BIRTH

    def forward(self, x):
        z = self.encode(x)
        return -self.prior.log_prob(z).sum(-1)  # FAULT


def build():
    model = Latent().cuda()
    return dict(model=model, args=(torch.randn(3, 6).cuda(),), loss_fn=lambda nll, _: nll.mean())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', '.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
