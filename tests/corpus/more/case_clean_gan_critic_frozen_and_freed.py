"""Clean: a GAN that freezes its critic while the generator learns, and frees it again, step by step."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.gen = nn.Linear(3, 4)
        self.critic = nn.Linear(4, 1)
        self.critic.requires_grad_(False)

    def forward(self, z):
        return self.critic(self.gen(z))


def build():
    model = Gan().cuda()
    gen = torch.optim.Adam(model.gen.parameters())
    critic = torch.optim.Adam(model.critic.parameters())

    def loss_fn(score, _):
        model.critic.requires_grad_(True)
        critic.zero_grad()
        fake = model.gen(torch.randn(3, 3, device=score.device)).detach()
        (F.softplus(-model.critic(torch.randn(3, 4, device=score.device))) + F.softplus(model.critic(fake))).mean().backward()
        critic.step()
        for p in model.critic.parameters():
            p.requires_grad = False
        return F.softplus(-model(torch.randn(3, 3, device=score.device))).mean()

    return dict(model=model, args=(torch.randn(3, 3).cuda(),), loss_fn=loss_fn, optimizer=gen, steps=2)


EXPECT = []
RAISES = None
