import torch
from torch import nn


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        return self.fc(x) * self.scale


device = "cuda" if torch.cuda.is_available() else "cpu"
actor = Actor().to(device)
target = Actor()
target.load_state_dict(actor.state_dict())
a = actor(torch.ones(3, 4, device=device))
noise = torch.randn_like(a) * target.scale
print((target(torch.ones(3, 4, device=device)) + noise).shape)
