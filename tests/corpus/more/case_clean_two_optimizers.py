"""Clean: two networks, two optimizers, the second built later; gradients reach both in each step."""
import torch
from torch import nn

GPUS = 1


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Linear(4, 1).cuda()
        self.opt_c = torch.optim.Adam(self.critic.parameters())
        self.gen = nn.Linear(3, 4).cuda()
        self.opt_g = torch.optim.Adam(self.gen.parameters())

    def forward(self, z):
        return self.critic(self.gen(z))


class Both:
    """Steps both optimizers."""

    def __init__(self, *opts):
        self.opts = opts

    def zero_grad(self):
        for opt in self.opts:
            opt.zero_grad()

    def step(self):
        for opt in self.opts:
            opt.step()


def build():
    model = Gan()
    inner = torch.optim.SGD([{'params': model.critic.parameters()}], lr=0.1)
    inner.step()
    z = torch.randn(5, 3).cuda()
    loss = model(z).mean()
    loss.backward()
    model.opt_c.step()
    model.opt_g.step()
    return dict(model=model, args=(z,), loss_fn=lambda out, _: out.mean(), optimizer=model.opt_g)


EXPECT = []
RAISES = None
