"""The standard normal prior of a variational autoencoder is built once, from tensors of the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


from torch.distributions import Independent, Normal, kl_divergence


class Vae(nn.Module):
    def __init__(self, width=6, latent=2):
        super().__init__()
        self.enc = nn.Linear(width, 2 * latent)
        self.dec = nn.Linear(latent, width)
        self.prior = Independent(Normal(torch.zeros(latent), torch.ones(latent)), 1)  # BIRTH

    def encode(self, x):
        mean, log_scale = self.enc(x).chunk(2, dim=-1)
        return Independent(Normal(mean, log_scale.exp()), 1)

    def forward(self, x):
        posterior = self.encode(x)
        z = posterior.rsample()
        kl = kl_divergence(posterior, self.prior)  # FAULT
        return self.dec(z), kl.mean()


def build():
    x = torch.randn(3, 6, device='cuda')
    return dict(model=Vae().to('cuda'), args=(x,), loss_fn=lambda out, y: F.mse_loss(out[0], y) + out[1], target=x)


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['register_buffer', 'device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
